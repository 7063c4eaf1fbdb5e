"""Entries of the public registry of differential privacy deployments."""
