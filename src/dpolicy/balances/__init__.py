"""Spent losses of every rule, by block of the partition space."""
