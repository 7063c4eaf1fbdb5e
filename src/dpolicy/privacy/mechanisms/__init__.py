"""What one mechanism costs: a module for each family, from parameters to a loss per certificate."""
