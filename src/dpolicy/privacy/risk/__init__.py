"""Attacker success that certificates imply, as upper bounds (theory/risk)."""
