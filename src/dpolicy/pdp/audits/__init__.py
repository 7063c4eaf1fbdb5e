"""Audit of a ledger: every record is checked and every decision recomputed."""
