"""The allocation problem: candidates and remaining budgets as a sparse knapsack."""
