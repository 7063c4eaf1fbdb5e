"""Middleware, limits, request bodies and problem details."""
