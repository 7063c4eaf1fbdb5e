"""The dashboard: views of the state, and pages that show them."""
