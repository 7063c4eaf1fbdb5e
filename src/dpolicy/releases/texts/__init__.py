"""Texts of decisions and budgets for people: amounts, stated δ, and denials."""
