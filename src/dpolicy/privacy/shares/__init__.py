"""Shares of δ: how the orders of a budget divide it."""
