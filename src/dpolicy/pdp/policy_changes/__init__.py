"""Policies of a ledger: their records, conflicts with recorded releases, and impact."""
