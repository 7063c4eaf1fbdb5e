"""What happened, for ever: an append-only log of events, chained by hashes."""
