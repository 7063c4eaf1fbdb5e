"""Gate for OpenDP."""
