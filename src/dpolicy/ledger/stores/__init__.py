"""Stores of a ledger: memory, SQLite and PostgreSQL."""
