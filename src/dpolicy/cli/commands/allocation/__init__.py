"""Commands that select among competing releases."""
