"""Spending: what recorded releases spent in any scope, for any unit, anywhere."""
