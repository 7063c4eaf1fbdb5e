"""Requests for many releases, in one commit."""
