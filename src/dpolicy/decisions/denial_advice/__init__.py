"""Advice on a denial: its cause, and changed releases that would be allowed."""
