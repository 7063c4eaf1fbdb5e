"""Keep the cumulative privacy risk of all differentially private releases under control."""
