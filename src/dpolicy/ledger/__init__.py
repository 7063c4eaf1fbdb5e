"""The ledger: an append-only log of events, linked by hashes."""
