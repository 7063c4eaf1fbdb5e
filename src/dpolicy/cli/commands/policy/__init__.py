"""Commands that read, check, test and activate policies."""
