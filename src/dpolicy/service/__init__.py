"""HTTP service of the decision point: API, access control and dashboard."""
