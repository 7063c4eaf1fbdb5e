"""Hasse diagrams of rules."""
