"""Demo: the dashboard of a fictional company with one year of sample data."""
