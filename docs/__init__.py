"""Documentation; `docs/generator` generates the reference pages."""
