"""Gates for libraries of differential privacy, and conversions to and from other formats."""
