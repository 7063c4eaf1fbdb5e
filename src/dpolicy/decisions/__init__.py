"""Pure decisions: an enforced policy, balances and a release give a verdict with reasons."""
