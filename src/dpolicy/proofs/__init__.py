"""Proofs of what a policy guarantees for scopes that no rule has."""
