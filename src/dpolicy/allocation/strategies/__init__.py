"""Strategies by name: a problem → the candidates to take. They are pure and take no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.strategies.efficient import efficient
from dpolicy.allocation.strategies.exact import exact
from dpolicy.allocation.strategies.fair import fair
from dpolicy.allocation.strategies.first_come import first_come
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
