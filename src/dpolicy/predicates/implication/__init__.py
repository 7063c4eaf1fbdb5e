"""Implication between predicates: sets, search for a counter-example, and z3."""
