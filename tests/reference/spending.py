"""Naive spending of selected requests in a scope, computed block by block and request by request.

The module works on the plain values of a workload, without a policy, regions or integers. The
maximum lies at a block where a request begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: The orders of the evaluation's accounting.
ORDERS = (2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 1e6)
DELTA = 1e-7
ACTIVE = 12


def largest_epsilon(
    workload: Any,
    requests: Iterable[Mapping[str, Any]],
    in_scope: Callable[[Mapping[str, Any]], bool],
    cohorts: Iterable[int],
    by_month: bool = False,
) -> float:
    """Return the largest ε over cohorts, slots and, with `by_month`, months."""
    counted = [request for request in requests if in_scope(request)]
    slots = {low for request in counted for low, _ in request["ranges"]}
    months = {request["month"] for request in counted} if by_month else {None}
    return max(
        (
            epsilon(workload, [s for s in counted if _is_charged(s, cohort, slot, month)])
            for cohort in cohorts
            for slot in slots
            for month in months
        ),
        default=0.0,
    )


def _is_charged(request: Mapping[str, Any], cohort: int, slot: int, month: int | None) -> bool:
    return (
        cohort <= request["round"] < cohort + ACTIVE
        and any(low <= slot <= high for low, high in request["ranges"])
        and (month is None or request["month"] == month)
    )


def epsilon(workload: Any, requests: Sequence[Mapping[str, Any]]) -> float:
    """Return the minimum over the orders of the sum of divergences plus log(1/δ)/(α − 1)."""
    if not requests:
        return 0.0
    epsilons: list[float] = []
    for position, order in enumerate(workload.orders):
        if order in ORDERS:
            total = sum(workload.mechanisms[s["mechanism"]]["renyi"][position] for s in requests)
            epsilons.append(total + math.log(1 / DELTA) / (order - 1))
    return min(epsilons)
