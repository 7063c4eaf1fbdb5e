"""Dry runs: what the decision point would charge or allow now, without a record."""
