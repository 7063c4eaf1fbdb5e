"""The evaluation of the paper, on our own engine (docs/evaluation.md)."""
