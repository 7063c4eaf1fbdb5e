"""Strict YAML and JSON with positions, shapes and diagnostics; independent of privacy."""
