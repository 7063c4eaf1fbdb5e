"""Commands that run the HTTP service."""
