"""Excess curves of mechanisms: exact hockey-stick divergences at knots (theory/reserves, 5).

The divergences H_u of the mechanisms are the same in both directions; they are computed at knots
u ≥ 0. A Poisson sample with rate q turns them into (Balle, Barthe, Gaboardi 2018; Zhu, Dong, Wang
2022), with y = log(1 − q + q·e^{±u}):

    H_y = q·H_u for y ≥ 0,   H_y − (1 − e^y) = q·e^{−u}·H_u for y < 0.

All heights are upper bounds: `_ERROR` exceeds the relative error of their evaluation.
"""

from __future__ import annotations

import math

import numpy as np

from dpolicy.privacy.conversion import gaussian_log_delta
from dpolicy.privacy.reserves.quadrature import ExcessCurve, FloatArray

#: Knots per standard deviation of the noise, and how many deviations they reach.
_DENSITY, _REACH = 48, 24

#: Relative error of an evaluation: a few functions of the C library, and sums of positive terms.
_ERROR = 2.0**-40

#: Deviations that the sums of a discrete Gaussian cover.
_LATTICE_REACH = 36


def gaussian_curve(mu: float, rate: float = 1.0) -> ExcessCurve:
    """Return the curve of a Gaussian with Δ/σ = μ on a Poisson sample."""
    count = math.ceil(_DENSITY * (_REACH + mu / 2)) + 1
    losses: FloatArray = np.arange(count, dtype=np.float64) * (mu / _DENSITY)
    heights = np.array([math.exp(gaussian_log_delta(mu, loss)) for loss in losses.tolist()])
    return _sampled_curve(losses, heights, rate)


def laplace_curve(epsilon: float) -> ExcessCurve:
    """Return the curve of Laplace noise with Δ/b = ε."""
    losses = np.linspace(0.0, epsilon, 8 * _DENSITY + 1)
    return _sampled_curve(losses, -np.expm1((losses - epsilon) / 2), 1.0)


def discrete_gaussian_curve(sigma: float) -> ExcessCurve:
    """Return the curve of integer Gaussian noise for a shift by one.

    The loss at an integer z is (2z − 1)/2σ². At its value u for z = n, H_u = T(n) − e^u·T(n+1) with
    the tails T(n) = P(z ≥ n); `error` bounds their rounding, and 10⁻²⁸⁰ what is beyond the sums.
    Between two losses H is linear in e^u.
    """
    reach = math.ceil(sigma * _LATTICE_REACH) + 2
    weights = np.exp(-((np.arange(reach) / sigma) ** 2) / 2)
    weights /= 2 * weights.sum() - 1  # a truncated normalisation raises p
    tails = np.cumsum(weights[::-1])[::-1]
    points = np.arange(1, math.ceil(sigma * _REACH) + 2, max(1, math.floor(sigma / _DENSITY)))
    lost = np.exp((points - 0.5) / sigma**2) * tails[points + 1]
    error = (reach + 8) * 2.0**-52 * (tails[points] + lost)
    divergences = np.concatenate((weights[:1], tails[points] - lost + error + 1e-280))
    losses = np.concatenate(([0.0], (points - 0.5) / sigma**2))
    finer = max(1, math.ceil(_DENSITY / sigma))
    positions = np.arange((len(losses) - 1) * finer + 1) / finer
    between = np.interp(positions, np.arange(len(losses)), losses)
    heights = np.interp(np.exp(between), np.exp(losses), divergences)
    return _sampled_curve(between, heights, 1.0)


def _sampled_curve(losses: FloatArray, divergences: FloatArray, rate: float) -> ExcessCurve:
    """Return the curve on a Poisson sample; a rate of 1 is no sampling."""
    heights = divergences * (1 + _ERROR) * rate
    above, below = losses, -losses
    if rate < 1:
        above, below = np.log1p(rate * np.expm1(losses)), np.log1p(rate * np.expm1(-losses))
    high = heights * np.exp(-above / 2)
    low = heights * np.exp(-losses - below / 2)
    return ExcessCurve(
        np.concatenate((below[:0:-1], above)), np.concatenate((low[:0:-1], high)), rate == 1.0
    )
