"""The decision point of a service, from anywhere: the same calls, the same values and errors."""
