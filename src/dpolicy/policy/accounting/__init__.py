"""Accounting section of the policy language: its grammar, its defaults by version, and tuning."""
