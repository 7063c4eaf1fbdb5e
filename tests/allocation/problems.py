"""Small rounds, drawn by Hypothesis, with everything in them that a row can be."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.privacy.loss import INFINITE

#: Small amounts collide often; the large ones overflow if they are added without care.
AMOUNTS = st.one_of(st.integers(0, 12), st.sampled_from([10**13, INFINITE - 1, INFINITE]))
LEFT = st.one_of(st.integers(-1, 24), st.sampled_from([-1, 0, 2 * 10**13, INFINITE - 1, INFINITE]))
DELTAS = st.sampled_from([0, 0, 0, 1, 3])


@st.composite
def rows(draw: st.DrawFn, candidates: int, certificates: int) -> ConstraintRow:
    """A row of some of the candidates."""
    who = sorted(draw(st.sets(st.integers(0, candidates - 1), min_size=1)))
    costs = [
        [*draw(st.lists(AMOUNTS, min_size=certificates, max_size=certificates)), draw(DELTAS)]
        for _ in who
    ]
    left = [
        [*draw(st.lists(LEFT, min_size=certificates, max_size=certificates)), draw(LEFT)]
        for _ in range(draw(st.integers(1, 3)))
    ]
    every = draw(st.sampled_from([False, False, True]))
    numbers = np.array(costs, dtype=np.int64), np.array(left, dtype=np.int64)
    chosen = np.array(who, dtype=np.intp)
    return ConstraintRow(draw(st.integers(0, 2)), chosen, np.arange(len(who)), *numbers, every)


@st.composite
def rounds(draw: st.DrawFn, most: int = 7) -> AllocationProblem:
    """A few candidates and the rows they contest."""
    size, certificates = draw(st.integers(1, most)), draw(st.integers(1, 3))
    found = draw(st.lists(rows(size, certificates), max_size=5))
    utilities = draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    alone = draw(st.lists(st.sampled_from([True] * 5 + [False]), min_size=size, max_size=size))
    ids = tuple(f"r{number}" for number in range(size))
    return AllocationProblem(ids, np.array(utilities, float), tuple(found), np.array(alone))
