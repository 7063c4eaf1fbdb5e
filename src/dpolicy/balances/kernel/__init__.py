"""Decisions over rules in one pass: compiled, or in NumPy."""
