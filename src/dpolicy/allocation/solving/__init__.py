"""Bounds, cuts and solvers that the allocation strategies share."""
