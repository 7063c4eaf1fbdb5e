"""Generator of the reference pages; `docs/generate.py` is its command."""
