"""Views of questions about the ledger: spending in a scope, and risk in words."""
