"""Releases and budgets in Python programs: values, builders and tables."""
