"""Losses charged to each rule, per block of the partition space."""
