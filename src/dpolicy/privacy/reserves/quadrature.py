"""Certified reserve costs of a mechanism from its excess curve (theory/reserves, 5).

With n_s the density of N(0, s), a mechanism with the excess curve m costs c beside reserve r if

    (m ∗ n_r)(x)  ≤  ½ ∫₀ᶜ e^{−u/8} n_{r+u}(x) du + τ·c·e^{r/8−|x|/2}      for all real x.

After multiplication by n_r(0)/n_r(x) both sides are log-convex in x on each side of zero: chords
bound the left side from above, secants bound the right side from below. A finite grid therefore
covers all x up to its end, and beyond it the left side falls faster than the last term. All sums
have positive terms, so rounding errors stay relative; `_MARGIN` exceeds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.normal_distribution import log_tail, tail_quantile
from dpolicy.privacy.reserves.ladder import LEAK_RATE

FloatArray = NDArray[np.float64]

#: Distance that the logarithms of both sides keep: terms with exponents up to 2¹⁰ have a relative
#: error below 2⁻⁴², and sums of 2¹² of them one below 2⁻⁴⁰.
_MARGIN = 2.0**-36

#: Costs are powers 2^(n/2048): the last digits of libraries practically never change a cost.
_STEPS_PER_OCTAVE = 2048

#: Points of x per standard deviation of the reserve, and the largest number of them on one side.
_DENSITY, _MAX_POINTS = 24, 1200

#: Smallest leak for which the curves have knots: a larger group is refused.
_MIN_LEAK = 1e-200

#: Cells of the integral over u per factor e of r + u.
_CELLS = 192


@dataclass(frozen=True, slots=True, eq=False)
class ExcessCurve:
    """Upper bounds of m(y) = e^{−y/2}·(H_y − (1 − e^y)₊) at knots y, ascending, with one at 0.

    H_y is the hockey-stick divergence of a mechanism at e^y, for the pair of its worst neighbours.
    m is convex on each side of 0, and H_y = e^{|y|/2}·m(y) falls with |y| in each direction. Beyond
    the knots H_y is at most its value at the last knot. The curve is symmetric if m(−y) = m(y).
    """

    knots: FloatArray
    heights: FloatArray
    is_symmetric: bool

    @property
    def variance(self) -> float:
        """2∫m: the cost that large reserves approach."""
        return float(np.sum(np.diff(self.knots) * (self.heights[1:] + self.heights[:-1])))

    def trim(self, level: float) -> tuple[ExcessCurve, float]:
        """Return the curve without knots at which H is below `level`, and the leak beyond them."""
        divergences = np.exp(np.abs(self.knots) / 2) * self.heights
        kept = np.flatnonzero(divergences >= level)
        first, last = max(int(kept[0]) - 1, 0), min(int(kept[-1]) + 1, len(self.knots) - 1)
        part = slice(first, last + 1)
        tail = float(divergences[first] + divergences[last]) * (1 + _MARGIN)
        return ExcessCurve(self.knots[part], self.heights[part], self.is_symmetric), tail


def certified_costs(
    curve: ExcessCurve, reserves: Sequence[float], ceiling: float, size: int = 1
) -> list[float]:
    """Return a cost for each reserve, ascending, for a group of `size`; `inf` if there is none.

    A group of k costs k²·c if one unit costs c beside r/k² (theory/reserves, 4). The search stops
    at `ceiling`, a cost of one unit: a reserve beside which no cost up to it verifies gets `inf`.
    """
    costs: list[float] = []
    for reserve in reserves:
        cost = _smallest_cost(curve, reserve / size**2, ceiling, size)
        ceiling = min(ceiling, cost)
        costs.append(size**2 * cost * (1 + _MARGIN))
    return costs


def _smallest_cost(curve: ExcessCurve, reserve: float, ceiling: float, size: int) -> float:
    """Return a cost of one unit that verifies and is close to the smallest one; `inf` if none."""
    lowest, top = _step_below(curve.variance / 2), _step_below(ceiling) + 1
    smallest_leak = unit_leak(_cost_at(min(lowest, top)), reserve, size) / 2
    if smallest_leak < _MIN_LEAK:
        return math.inf
    trimmed, tail = curve.trim(smallest_leak / 256)
    sides = [_Side.build(trimmed, reserve, smallest_leak)]
    if not curve.is_symmetric:
        sides.append(_Side.build(_mirror(trimmed), reserve, smallest_leak))
    checked = [side for side in sides if side is not None]
    if len(checked) < len(sides):
        return math.inf

    def holds(step: int) -> bool:
        cost = _cost_at(step)
        leak = unit_leak(cost, reserve, size) - tail
        return leak > 0 and all(side.holds(cost, leak) for side in checked)

    low, high = lowest, min(lowest + _STEPS_PER_OCTAVE * 9 // 8, top)
    while not holds(high):
        if high >= top:
            return math.inf
        low, high = high, min(high + _STEPS_PER_OCTAVE, top)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _cost_at(high)


def _step_below(cost: float) -> int:
    """Return the number of the last step below a cost."""
    return math.floor(math.log2(cost) * _STEPS_PER_OCTAVE)


def _cost_at(step: int) -> float:
    return float(2.0 ** (step / _STEPS_PER_OCTAVE))


def unit_leak(cost: float, reserve: float, size: int) -> float:
    """Return η of one unit such that a chain of j ≤ k units leaks at most τ·j²·cost.

    A chain leaks at most j·Φ(Φ⁻¹(η) + (j−1)·√(r + cost)) (theory/reserves, 4).
    """
    leak = LEAK_RATE * cost
    if size == 1:
        return leak
    shift = (size - 1) * math.sqrt(reserve + cost)
    distance = (tail_quantile(-math.log(leak)) + shift) * (1 + _MARGIN)
    return math.exp(log_tail(distance)) * (1 - _MARGIN)


def _mirror(curve: ExcessCurve) -> ExcessCurve:
    """Return the curve of the other direction: m(−y)."""
    return ExcessCurve(-curve.knots[::-1], curve.heights[::-1], curve.is_symmetric)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The inequality on x ≥ 0 for one reserve, as logarithms at the points of a grid.

    `needed` is that of (m ∗ n_r)(x) and `leaked` that of e^{r/8−x/2}, both times n_r(0)/n_r(x).
    """

    reserve: float
    grid: FloatArray
    needed: FloatArray
    leaked: FloatArray

    @classmethod
    def build(cls, curve: ExcessCurve, reserve: float, leak: float) -> _Side | None:
        """Return the side; None if the knots are too far apart, or it takes too many points."""
        if float(np.max(np.diff(curve.knots))) ** 2 > 100 * reserve:
            return None
        end = _grid_end(curve, reserve, leak)
        count = math.ceil(end / math.sqrt(reserve) * _DENSITY)
        if count > _MAX_POINTS:
            return None
        grid = np.linspace(0.0, end, count + 2)
        leaked = grid**2 / (2 * reserve) - grid / 2 + reserve / 8
        leaked += 0.5 * math.log(2 * math.pi * reserve)
        return cls(reserve, grid, _log_convolution(curve, reserve, grid) + _MARGIN, leaked)

    def holds(self, cost: float, leak: float) -> bool:
        """Return whether the inequality holds with this cost and leak for all x ≥ 0.

        The end of the grid is beyond y_max + r/2, where the left side falls faster than the leak:
        if the leak alone is enough there, it is enough for all larger x.
        """
        leaked = self.leaked + math.log(leak) - _MARGIN
        if self.needed[-1] > leaked[-1]:
            return False
        available = np.logaddexp(_log_growth(self.reserve, cost, self.grid), leaked) - _MARGIN
        return _is_below(self.grid, self.needed, available)


def _grid_end(curve: ExcessCurve, reserve: float, leak: float) -> float:
    """Return an x beyond y_max + r/2 at which the leak alone is enough."""
    masses = _knot_masses(curve, reserve)
    # m_j n_r(x − y_j) e^{x/2} ≤ η/n for every knot j, n the number of knots, suffices.
    excess = np.log(np.maximum(masses, 1e-300)) + curve.knots / 2 + math.log(len(masses) / leak)
    excess -= 0.5 * math.log(2 * math.pi * reserve)
    distance = np.sqrt(2 * reserve * np.maximum(excess, 0.0) + reserve**2 / 4) + reserve / 2
    return float(max(np.max(curve.knots + distance), curve.knots[-1] + reserve)) * (1 + _MARGIN)


def _knot_masses(curve: ExcessCurve, reserve: float) -> FloatArray:
    """Return masses at the knots whose smoothing bounds m ∗ n_r from above.

    m is below its chords; n_r(x − y) is below the chord of its ends times e^{h²/8r}.
    """
    widths, heights = np.diff(curve.knots), curve.heights
    factors = widths / 6 * np.exp(widths**2 / (8 * reserve))
    masses = np.zeros(len(heights))
    masses[:-1] += factors * (2 * heights[:-1] + heights[1:])
    masses[1:] += factors * (heights[:-1] + 2 * heights[1:])
    return masses


def _log_convolution(curve: ExcessCurve, reserve: float, grid: FloatArray) -> FloatArray:
    """Return the logarithm of an upper bound of (m ∗ n_r)(x)·n_r(0)/n_r(x) at each x."""
    masses = _knot_masses(curve, reserve)
    knots = curve.knots[masses > 0]
    weights = np.log(masses[masses > 0]) - knots**2 / (2 * reserve)
    return _log_sum_exp(weights + np.outer(grid / reserve, knots))


def _log_growth(reserve: float, cost: float, grid: FloatArray) -> FloatArray:
    """Return the logarithm of a lower bound of ½∫₀ᶜ e^{−u/8} n_{r+u}(x) du·n_r(0)/n_r(x).

    In w = 1/(r+u) the logarithm of the integrand is convex but for −1/(8w), which is concave.
    Jensen's inequality on each cell gives the value at its middle, and the mean of the ends for
    the concave term.
    """
    ratio = math.log1p(cost / reserve)
    count = max(16, math.ceil(_CELLS * ratio))
    step = ratio * (1 - _MARGIN) / count
    totals = reserve * np.exp(step * np.arange(count + 1))
    inverse = 1 / totals
    middle, widths = (inverse[1:] + inverse[:-1]) / 2, inverse[:-1] * -math.expm1(-step)
    slow = np.log(widths) - 1.5 * np.log(middle) + 0.5 * math.log(reserve) - math.log(2)
    slow -= ((totals[1:] + totals[:-1]) / 2 - reserve) / 8
    return _log_sum_exp(slow + np.outer(grid**2 / 2, 1 / reserve - middle))


def _log_sum_exp(exponents: FloatArray) -> FloatArray:
    """Return log Σ exp of each row."""
    top = exponents.max(axis=1)
    sums: FloatArray = top + np.log(np.exp(exponents - top[:, np.newaxis]).sum(axis=1))
    return sums


def _is_below(grid: FloatArray, needed: FloatArray, available: FloatArray) -> bool:
    """Return whether a convex function is below another on the whole grid.

    Both are known at equidistant points. On a cell the first is below its chord. The second is
    above the secants of the neighbouring cells, extended, and its slope at 0 is at least −½. The
    chord minus the larger secant is concave and largest where the secants meet.
    """
    if not np.all(needed <= available):
        return False
    step = float(grid[1] - grid[0])
    slopes = np.diff(available) / step
    left = np.concatenate(([-0.5], slopes[:-1]))
    right = np.concatenate((slopes[1:], [slopes[-1]]))
    right[-1] = math.inf  # the last cell has no neighbour: only the left secant bounds it
    rise = np.diff(available)
    with np.errstate(all="ignore"):
        # left: a + left·s; right: a + rise − right·(step − s); they meet at s.
        meeting = np.where(right > left, (right * step - rise) / (right - left), 0.0)
    meeting[-1] = step
    meeting = np.clip(meeting, 0.0, step)
    lowest = available[:-1] + left * meeting
    chord = needed[:-1] + np.diff(needed) / step * meeting
    return bool(np.all(chord <= lowest))
