"""Privacy units: calendar, order and group privacy."""
