"""Mechanisms: one module per family, from parameters to divergence bounds."""
