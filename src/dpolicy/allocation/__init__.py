"""More asked than there is: which releases of a round to choose (docs/allocation.md)."""
