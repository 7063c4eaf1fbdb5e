"""Privacy losses: how they are computed, composed, and compared with a budget."""
