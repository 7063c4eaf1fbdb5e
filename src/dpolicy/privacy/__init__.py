"""What a loss is, how losses add, and when they fit a budget."""
