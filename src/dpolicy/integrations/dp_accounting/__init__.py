"""Gate for dp_accounting."""
