"""The commands of `dpolicy`, one module each."""
