"""Allocation strategies by name. A strategy solves a problem; it is pure and reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.strategies.baselines import fair, first_come
from dpolicy.allocation.strategies.efficient import efficient
from dpolicy.allocation.strategies.exact import exact
from dpolicy.allocation.strategies.price import price

Strategy = Callable[[AllocationProblem], Solution]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "first-come": first_come,
        "fair": fair,
        "efficient": efficient,
        "price": price,
        "exact": exact,
    }
)
