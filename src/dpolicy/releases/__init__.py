"""Release requests of analysts, and the decisions on them."""
