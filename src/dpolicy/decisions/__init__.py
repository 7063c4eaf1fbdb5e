"""Pure decisions: a policy, balances and a release give a verdict with reasons."""
