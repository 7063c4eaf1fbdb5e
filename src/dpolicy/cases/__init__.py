"""Test cases of policies: files that list steps and their expected results."""
