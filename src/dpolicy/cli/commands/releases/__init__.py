"""Commands that cost, decide and import releases."""
