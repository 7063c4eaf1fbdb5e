"""Privacy units: calendar periods, neighbouring relations and group privacy."""
