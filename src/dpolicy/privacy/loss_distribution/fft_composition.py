"""Composition of grid measures by fast Fourier transforms, with a bound of every error.

Every measure is tilted by e^(λ·loss): the composed mass then lies around the ε of interest, so the
rounding errors of the transforms are small against δ. A window of the losses lies on a circle, on
which masses from outside of the window wrap around: they only add to the masses inside. The mass
above the window is bounded by Markov's inequality (docs/theory/exact.md, statement 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss_distribution.grid_measure import GridMeasure
from dpolicy.privacy.loss_distribution.loss_atoms import FloatVector

Spectrum = NDArray[np.complex128]

#: A measure, and how often it is composed.
Factor = tuple[GridMeasure, int]

#: Unit roundoff of a float.
_ROUNDOFF = 2.0**-53

#: Relative error of a transform in the 2-norm, in roundoffs for each doubling of its size. Higham
#: 2002, Theorem 24.2 gives less than 8 for exact trigonometric factors; this is twice that.
TRANSFORM_ERROR = 16 * _ROUNDOFF

#: Relative error of all other steps for each composed measure: tilting, summation and untilting.
RUN_ERROR = 2.0**-38

#: Relative error of a sum of positive terms over the window, and of its exponentials.
_SUM_ERROR = 2.0**-32

#: More than the mass that underflow can remove.
_UNDERFLOW = 1e-290

#: Largest exponent of an untilted mass.
_MAX_EXPONENT = 600.0

#: Multiples of the tilt at which the mass above the window is bounded.
_TAIL_TILTS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True, eq=False)
class ComposedLosses:
    """Upper bounds of the composed masses: `masses` from the loss `start`, and `above` over them.

    `above` also has the mass of infinite loss.
    """

    step: float
    first: int
    masses: FloatVector
    above: float

    @property
    def start(self) -> float:
        """The smallest loss of the window."""
        return self.first * self.step

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of δ(ε), for ε ≥ 0 in the window; 1 for an ε below it."""
        if epsilon < max(self.start, 0.0):
            return 1.0
        skipped = min(max(int(epsilon / self.step) - self.first - 1, 0), len(self.masses))
        positions = np.arange(self.first + skipped, self.first + len(self.masses))
        excess = np.maximum(positions * self.step * (1 + 2.0**-50) - epsilon, 0)
        total = float((self.masses[skipped:] * -np.expm1(-excess)).sum())
        return min(total * (1 + _SUM_ERROR) + self.above, 1.0)

    def estimate_epsilon(self, target: float) -> float | None:
        """Return about the smallest ε ≥ 0 in the window at which δ is at most `target`.

        The running sums cancel and may overflow, so the result is not certified.
        """
        losses = np.arange(self.first, self.first + len(self.masses)) * self.step
        first = np.cumsum(self.masses[::-1])[::-1]
        with np.errstate(over="ignore", invalid="ignore"):
            second = np.cumsum((self.masses * np.exp(-losses))[::-1])[::-1]
            deltas = first - np.exp(losses) * second + self.above
        enough = np.flatnonzero((deltas <= target) & (losses >= 0))
        if not len(enough):
            return None
        at = int(enough[0])
        if not at:
            return float(losses[0])
        ratio = (float(first[at]) + self.above - target) / (float(second[at]) or math.inf)
        inside = math.log(ratio) if 0 < ratio < math.inf else 0.0
        return max(float(losses[at - 1]), min(inside, float(losses[at])), 0.0)


def compose(factors: Sequence[Factor], tilt: float, center: float, size: int) -> ComposedLosses:
    """Compose measures with the same step in a window of `size` positions around a loss."""
    step = factors[0][0].step
    scales = [measure.log_moment(tilt) for measure, _ in factors]
    masses, error = _convolve(factors, scales, tilt, size)
    first = math.floor(center / step) - size // 2
    window = np.roll(masses, -(first % size))
    log_scale = math.fsum(scale * count for scale, (_, count) in zip(scales, factors, strict=True))
    runs = sum(count for _, count in factors)
    growth = math.exp(RUN_ERROR * (runs + 4) * (1 + abs(tilt)))
    losses = np.arange(first, first + size) * step
    # A clipped exponent belongs to a bound far above 1, which is no bound with or without clipping.
    exponents = np.minimum(log_scale - tilt * losses, _MAX_EXPONENT)
    untilted = (np.maximum(window, 0) + error) * np.exp(exponents)
    above = _mass_above(factors, tilt, (first + size) * step)
    return ComposedLosses(step, first, untilted * growth, above * growth)


def _convolve(
    factors: Sequence[Factor], scales: Sequence[float], tilt: float, size: int
) -> tuple[FloatVector, float]:
    """Return the composed tilted masses on the circle, and a bound of the error of each of them."""
    product: Spectrum = np.ones(size // 2 + 1, np.complex128)
    bound = np.ones(size // 2 + 1)
    relative = np.zeros(size // 2 + 1)
    for (measure, count), scale in zip(factors, scales, strict=True):
        masses = measure.tilt_masses(tilt, scale, size)
        spectrum = np.fft.rfft(masses)
        error = transform_error(size) * math.sqrt(size) * float(np.linalg.norm(masses))
        largest = np.abs(spectrum) + error
        bound *= largest**count
        relative += count * error / largest + 4 * _ROUNDOFF * (count + 1)
        product *= _power(spectrum, count)
    weights = np.full(size // 2 + 1, 2.0 / size)
    weights[[0, -1]] = 1.0 / size
    forward = float((weights * bound * relative).sum())
    backward = transform_error(size) * math.sqrt(float((weights * bound * bound).sum()))
    return np.fft.irfft(product, size), 1.01 * (forward + backward) + _UNDERFLOW


def transform_error(size: int) -> float:
    """Return the relative error of a transform of this size, in the 2-norm."""
    return TRANSFORM_ERROR * math.log2(size)


def _power(values: Spectrum, count: int) -> Spectrum:
    """Return a power by repeated squaring: its relative error is at most 4·count roundoffs."""
    result: Spectrum = np.ones_like(values)
    while count:
        if count & 1:
            result = result * values
        count >>= 1
        if count:
            values = values * values
    return result


def _mass_above(factors: Sequence[Factor], tilt: float, loss: float) -> float:
    """Return a bound of the mass from a loss on: Σ mass ≤ e^(−λ·loss)·Π moment(λ)."""
    bounds = []
    for multiple in _TAIL_TILTS:
        moments = [measure.log_moment(multiple * tilt) * count for measure, count in factors]
        bounds.append(math.fsum(moments) - multiple * tilt * loss)
    return math.exp(min(min(bounds), 0.0)) * (1 + _SUM_ERROR)
