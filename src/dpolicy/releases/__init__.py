"""What analysts ask, and what they are told."""
