"""Ranking of losses by ε at δ, which computes the ε of few of them.

ε is the smallest of many conversions. Some of them are quick for a whole array and give an upper
bound of each ε. Losses are visited from the largest bound down; when a bound is below the smallest
ε of the result, no further loss belongs to it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, Certificate, Notion
from dpolicy.privacy.conversion import gaussian_to_epsilon, log_fraction
from dpolicy.privacy.cost_report import CostReport, report_loss
from dpolicy.privacy.loss import INFINITE, Certificates
from dpolicy.privacy.loss_arrays import DELTA_QUANTA, LossArray, row_to_loss

#: Number of μ between the smallest and the largest at which ε is computed for the bounds.
_TABLE_SIZE = 64

#: Relative margin of a bound over the rounding errors of its conversion.
_MARGIN = 1 + 2.0**-30

EpsilonBounds = NDArray[np.float64]


class EpsilonRanking:
    """Losses in the certificates of a report, with their ε at δ."""

    def __init__(self, rows: LossArray, certificates: Certificates, delta: Fraction) -> None:
        self._rows, self._certificates, self._delta = rows, certificates, delta
        self._known: dict[bytes, tuple[CostReport, float | None]] = {}

    def report(self, position: int) -> tuple[CostReport, float | None]:
        """Return the report of a loss and its ε at δ; None without a bound."""
        row = self._rows[position]
        key = row.tobytes()
        if key not in self._known:
            report = report_loss(row_to_loss(row, self._certificates))
            self._known[key] = (report, report.epsilon(self._delta))
        return self._known[key]

    def largest(self, limit: int, precedes: Callable[[int], int] | None = None) -> list[int]:
        """Return the positions of the largest ε, at most `limit`, in descending order.

        A loss without a bound is the largest. Of equal ones, the smaller key `precedes` is first,
        by default the smaller position.
        """
        bounds = self._upper_bounds()
        best: list[tuple[float, int, int]] = []
        for position in np.argsort(-bounds, kind="stable").tolist():
            if len(best) >= limit and (not limit or bounds[position] < best[0][0]):
                break
            _, epsilon = self.report(position)
            rank = -(position if precedes is None else precedes(position))
            item = (math.inf if epsilon is None else epsilon, rank, position)
            if len(best) < limit:
                heapq.heappush(best, item)
            else:
                heapq.heappushpop(best, item)
        return [position for _, _, position in sorted(best, reverse=True)]

    def _upper_bounds(self) -> EpsilonBounds:
        """Return a number that is at least ε for each loss; ∞ without a bound."""
        columns = dict(zip(self._certificates, range(len(self._certificates)), strict=True))
        amounts = np.where(self._rows >= INFINITE, np.inf, self._rows / QUANTA_PER_UNIT)
        bounds = amounts[:, columns[PURE]].copy()
        leaks, group = np.unique(self._rows[:, -1], return_inverse=True)
        for number, leak in enumerate(leaks.tolist()):
            remaining = self._delta - Fraction(leak, DELTA_QUANTA)
            chosen = np.flatnonzero(group == number)
            if remaining < 0:
                bounds[chosen] = np.inf
            elif remaining:
                smaller = _convert_curves(amounts[chosen], columns, remaining)
                bounds[chosen] = np.minimum(bounds[chosen], smaller)
        return np.maximum(bounds, 0.0) * _MARGIN


def _convert_curves(
    amounts: EpsilonBounds, columns: Mapping[Certificate, int], delta: Fraction
) -> EpsilonBounds:
    """Return the smallest ε of the Rényi orders and of μ² (Canonne, Kamath, Steinke 2020, 12)."""
    best = _convert_gaussians(amounts[:, columns[MU_SQUARED]], delta)
    for certificate, column in columns.items():
        if certificate.notion is Notion.RENYI:
            order = float(certificate.order)
            mass = -(math.log(order) + log_fraction(delta)) / (order - 1)
            best = np.minimum(best, amounts[:, column] + (math.log1p(-1 / order) + mass))
    return best


def _convert_gaussians(mu_squared: EpsilonBounds, delta: Fraction) -> EpsilonBounds:
    """Return an ε of each μ²: that of the next larger μ of a table."""
    bounds = np.full(len(mu_squared), np.inf)
    finite = np.flatnonzero(np.isfinite(mu_squared))
    if len(finite) <= 4 * _TABLE_SIZE:
        return bounds  # so few that a table takes longer than their ε
    mu = np.sqrt(mu_squared[finite])
    smallest, largest = max(float(mu.min()), 1e-9), float(mu.max()) * _MARGIN
    table = np.geomspace(smallest, max(largest, smallest), _TABLE_SIZE) * _MARGIN
    epsilons = np.array([gaussian_to_epsilon(float(m), delta) for m in table])
    bounds[finite] = epsilons[np.minimum(np.searchsorted(table, mu), _TABLE_SIZE - 1)]
    return bounds
