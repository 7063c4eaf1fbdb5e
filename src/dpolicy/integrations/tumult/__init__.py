"""Gate for Tumult Analytics."""
