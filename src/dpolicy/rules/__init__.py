"""Policy set → rules → order → kept rules → index."""
