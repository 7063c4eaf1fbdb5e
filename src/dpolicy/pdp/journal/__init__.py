"""The journal: shared commits, and the states of writers and readers."""
