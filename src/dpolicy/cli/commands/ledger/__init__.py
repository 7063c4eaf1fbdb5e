"""Commands that read, check and copy a ledger."""
