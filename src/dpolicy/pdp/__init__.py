"""Policy decision point: decides releases against the active policy and the ledger."""
