"""Array operations of spending equal plain loops: sums that saturate, and rankings by ε."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpolicy.pdp.spending.epsilon_ranking import EpsilonRanking
from dpolicy.pdp.spending.row_sums import sum_rows
from dpolicy.privacy.cost_report import report_certificates, report_loss
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import row_to_loss

AMOUNTS = st.one_of(
    st.integers(0, 10**13), st.integers(0, INFINITE), st.sampled_from((0, INFINITE, INFINITE - 1))
)
TERMS = st.lists(
    st.tuples(st.lists(AMOUNTS, min_size=2, max_size=2), st.integers(0, 10**6), st.integers(0, 2)),
    max_size=12,
)
CERTIFICATES = report_certificates(())


@given(TERMS)
def test_sums_equal_those_of_whole_numbers(terms: list[tuple[list[int], int, int]]) -> None:
    rows = np.array([row for row, _, _ in terms], np.int64).reshape(-1, 2)
    counts = np.array([count for _, count, _ in terms], np.int64)
    targets = np.array([target for _, _, target in terms], np.intp)
    expected = [
        [
            min(INFINITE, sum(row[column] * n for row, n, at in terms if at == target))
            for column in range(2)
        ]
        for target in range(3)
    ]
    assert sum_rows(rows, counts, targets, 3).tolist() == expected


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=400),
    st.sampled_from(("1e-6", "0", "1e-12")),
    st.integers(0, 5),
)
def test_a_ranking_equals_a_sort(numbers: list[int], delta: str, limit: int) -> None:
    """Rows of Gaussians, of curves only, of stated δ and without a bound."""
    generator = np.random.default_rng(numbers[0])
    rows = np.array([_row(number, generator) for number in numbers])
    ranking = EpsilonRanking(rows, CERTIFICATES, Fraction(delta))

    def size(position: int) -> tuple[float, int]:
        report = report_loss(row_to_loss(rows[position], CERTIFICATES))
        epsilon = report.epsilon(Fraction(delta))
        return math.inf if epsilon is None else epsilon, -position

    expected = sorted(range(len(rows)), key=size, reverse=True)[:limit]
    assert ranking.largest(limit) == expected


def _row(number: int, generator: np.random.Generator) -> list[int]:
    rho = number * 10**6
    row = [min(INFINITE, int(rho * float(c.order or 1))) for c in CERTIFICATES]
    row[0] = 2 * rho if number % 3 else INFINITE  # μ²; without it, the curve alone
    row[1] = INFINITE if number % 4 else int(generator.integers(0, 10**13))  # pure ε
    if number % 11 == 0:
        row = [INFINITE] * len(row)
    return [*row, (number % 5) * 10**11]
