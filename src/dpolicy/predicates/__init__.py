"""Which mechanisms a rule speaks about, and which predicate lies inside which."""
