"""Predicates over mechanisms: parsing, evaluation and the implication check."""
