"""Decision plans: everything about a decision that does not depend on the balances."""
