"""Hypothesis strategies for small allocation problems with every kind of constraint row."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE

#: Small amounts collide often; sums of the large ones overflow without saturation.
AMOUNTS = st.one_of(st.integers(0, 12), st.sampled_from([10**13, INFINITE - 1, INFINITE]))
REMAINING = st.one_of(
    st.integers(-1, 24), st.sampled_from([-1, 0, 2 * 10**13, INFINITE - 1, INFINITE])
)
DELTAS = st.sampled_from([0, 0, 0, 1, 3])


@st.composite
def constraint_rows(draw: st.DrawFn, candidates: int, certificates: int) -> ConstraintRow:
    """Draw a row of some of the candidates."""
    numbers = sorted(draw(st.sets(st.integers(0, candidates - 1), min_size=1)))
    costs = [
        [*draw(st.lists(AMOUNTS, min_size=certificates, max_size=certificates)), draw(DELTAS)]
        for _ in numbers
    ]
    remaining = [
        [*draw(st.lists(REMAINING, min_size=certificates, max_size=certificates)), draw(REMAINING)]
        for _ in range(draw(st.integers(1, 3)))
    ]
    require_all = draw(st.sampled_from([False, False, True]))
    return ConstraintRow(
        draw(st.integers(0, 2)),
        np.array(numbers, dtype=np.intp),
        np.arange(len(numbers)),
        np.array(costs, dtype=np.int64),
        np.array(remaining, dtype=np.int64),
        require_all,
    )


@st.composite
def allocation_problems(draw: st.DrawFn, max_candidates: int = 7) -> AllocationProblem:
    """Draw a few candidates and their constraint rows."""
    size, certificates = draw(st.integers(1, max_candidates)), draw(st.integers(1, 3))
    drawn_rows = draw(st.lists(constraint_rows(size, certificates), max_size=5))
    utilities = draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    alone = draw(st.lists(st.sampled_from([True] * 5 + [False]), min_size=size, max_size=size))
    ids = tuple(f"r{number}" for number in range(size))
    return AllocationProblem(ids, np.array(utilities, float), tuple(drawn_rows), np.array(alone))
