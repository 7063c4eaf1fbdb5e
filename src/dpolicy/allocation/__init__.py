"""Allocation rounds: selection among releases that compete for budget (docs/allocation.md)."""
