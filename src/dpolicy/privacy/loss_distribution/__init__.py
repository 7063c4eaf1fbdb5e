"""Loss distributions: certified upper bounds of δ(ε) and ε(δ) for a fixed list of mechanisms."""
