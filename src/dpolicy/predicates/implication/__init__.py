"""Implication between predicates: set logic, counterexample search, and the z3 solver."""
