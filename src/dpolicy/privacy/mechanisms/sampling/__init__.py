"""Poisson samples: amplified curves, moments of Gaussians at any order, and changed units."""
