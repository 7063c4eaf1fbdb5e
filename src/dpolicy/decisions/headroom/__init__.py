"""Headroom: how many more releases of one content the policy would allow."""
