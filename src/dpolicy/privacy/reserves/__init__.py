"""Reserves: certificates beside a Gaussian that never runs (theory/reserves)."""
