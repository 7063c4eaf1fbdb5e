"""Noise program: the noise of least total variance under posynomial limits of the loss; pure.

Variables are the logarithms x of noise factors, from 0 (the stated noise) to `MAX_LOG_FACTOR`. The
program minimises Σ vᵢ·e^{2xᵢ} subject to Σᵢ aᵢⱼ·e^{−pᵢⱼ·xᵢ} ≤ 1 for every limit j. Both sides are
convex in x (a geometric program), so a barrier method with Newton steps finds the minimum. For
Gaussian noise p is 2, and the limits are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Logarithm of the largest noise factor.
MAX_LOG_FACTOR = math.log(1000)

#: Relative distance to the minimum at which the barrier method stops.
PRECISION = 1e-5

_BARRIER_STEPS, _NEWTON_STEPS, _HALVINGS = 12, 40, 40


@dataclass(frozen=True, slots=True, eq=False)
class NoiseProgram:
    """Variances by variable, and shares and powers of each limit: limits × variables."""

    variances: Vector
    shares: Vector
    powers: Vector

    def losses(self, x: Vector) -> Vector:
        """Return the loss of each limit, in units of the limit."""
        total: Vector = (self.shares * np.exp(-self.powers * x)).sum(axis=1)
        return total

    def minimise(self) -> Vector | None:
        """Return the logarithms of the best noise factors; None if no factor is large enough."""
        x = self._feasible_start()
        if x is None:
            return None
        weights = self.variances / max(float(self.variances @ np.exp(2 * x)), 1e-300)
        sharpness = 1.0
        for _ in range(_BARRIER_STEPS):
            for _ in range(_NEWTON_STEPS):
                step = self._newton_step(x, weights, sharpness)
                if not np.isfinite(step).all():
                    return None
                x, moved = self._move(x, step, weights, sharpness)
                if moved < 1e-9:
                    break
            gap = (len(self.shares) + 2 * len(x)) / sharpness
            if gap < PRECISION * float(weights @ np.exp(2 * x)):
                break
            sharpness *= 20
        return x

    def _feasible_start(self) -> Vector | None:
        """Return equal factors well within all limits: near the border, steps are short."""
        x = np.full(len(self.variances), 1e-3)
        while (self.losses(x) >= 0.5).any():
            x = x * 1.2 + 0.02
            if x[0] >= MAX_LOG_FACTOR:
                return None
        return x

    def _barrier(self, x: Vector, weights: Vector, sharpness: float) -> float:
        room = 1 - self.losses(x)
        if (room <= 0).any() or (x <= 0).any() or (x >= MAX_LOG_FACTOR).any():
            return math.inf
        walls = np.log(room).sum() + np.log(x).sum() + np.log(MAX_LOG_FACTOR - x).sum()
        return float(sharpness * (weights @ np.exp(2 * x)) - walls)

    def _newton_step(self, x: Vector, weights: Vector, sharpness: float) -> Vector:
        terms = self.shares * np.exp(-self.powers * x)
        room = 1 - terms.sum(axis=1)
        slopes = self.powers * terms / room[:, np.newaxis]
        gradient = 2 * sharpness * weights * np.exp(2 * x) - slopes.sum(axis=0)
        gradient += 1 / (MAX_LOG_FACTOR - x) - 1 / x
        curvature = 4 * sharpness * weights * np.exp(2 * x) + (self.powers * slopes).sum(axis=0)
        curvature += 1 / (MAX_LOG_FACTOR - x) ** 2 + 1 / x**2
        hessian = slopes.T @ slopes + np.diag(curvature)
        try:
            step: Vector = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            return np.full(len(x), np.nan)
        return step

    def _move(
        self, x: Vector, step: Vector, weights: Vector, sharpness: float
    ) -> tuple[Vector, float]:
        """Move along a step, halved until the barrier function falls; return how far."""
        before = self._barrier(x, weights, sharpness)
        for _ in range(_HALVINGS):
            if self._barrier(x + step, weights, sharpness) < before:
                return x + step, float(np.abs(step).max())
            step = step / 2
        return x, 0.0
