"""Least noise: the noise per mechanism, of least total variance, with which a release fits.

The search adds the limits of the rules that a candidate exceeds, at the block where it exceeds
them, solves the noise program for all limits so far, and decides the result again. The power with
which a loss falls as noise grows is measured, because only for Gaussian noise is it always 2. A
bisection through `decide` ends the search, so the result is allowed whatever the program assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpolicy.decisions.decide import match_mechanisms
from dpolicy.decisions.noise_program import MAX_LOG_FACTOR, NoiseProgram, Vector
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.decisions.rule_limits import RuleLimit, exceeded_limits
from dpolicy.decisions.trials import DecisionTrials
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.body import Body
from dpolicy.releases.edits import has_noise, noise_variance, with_noise_factors
from dpolicy.releases.regions import Point

#: Largest number of noise programs that the search solves.
MAX_PROGRAMS = 10

#: Largest number of decisions of the bisection at the end.
MAX_BISECTIONS = 14

#: Factor of noise over which the power of a loss is measured.
_PROBE = 1.05

#: Logarithm of a factor that counts as no change, and of a change that ends the search.
_SMALLEST, _CONVERGED = 5e-4, 1e-3

#: Largest number of limits in a program.
_MAX_LIMITS = 64

Mask = NDArray[np.bool_]
Matrix = NDArray[np.float64]


def find_least_noise(trials: DecisionTrials, body: Body) -> Body | None:
    """Return the denied release with the noise of least total variance that is allowed.

    Return None if the search does not reach an allowed release. Mechanisms that add nothing to an
    exceeded rule keep their noise.
    """
    scalable = np.array([has_noise(request) for request in body["mechanisms"]])
    x = np.zeros(len(scalable))
    limits: dict[tuple[bool, int, Point | None], RuleLimit] = {}
    for _ in range(MAX_PROGRAMS):
        trial = trials.decide(_scale(body, x))
        if trial is None:
            return None
        for limit in exceeded_limits(trial.verdict):
            is_per_release = limit.section is trials.enforced.each_release
            limits.setdefault((is_per_release, limit.number, limit.point), limit)
        if not 0 < len(limits) <= _MAX_LIMITS:
            return None
        better = _solve(trials, body, x, scalable, list(limits.values()))
        if better is None:
            return None
        change, x = float(np.abs(better - x).max()), better
        if change < _CONVERGED:
            break
    return _bisect(trials, body, x)


def _scale(body: Body, x: Vector) -> Body:
    factors = np.where(x < _SMALLEST, 1.0, np.exp(x))
    return with_noise_factors(body, [float(factor) for factor in factors])


def _solve(
    trials: DecisionTrials, body: Body, x: Vector, scalable: Mask, limits: Sequence[RuleLimit]
) -> Vector | None:
    """Return better logarithms of the factors, from losses and powers measured at `x`."""
    probe = np.where(scalable, x + np.log(_PROBE), x)
    here, there = trials.resolve(_scale(body, x)), trials.resolve(_scale(body, probe))
    if here is None or there is None:
        return None
    shares, powers = [], []
    for limit in limits:
        near, far = _losses_to_limit(limit, here), _losses_to_limit(limit, there)
        columns = _choose_columns(limit, near)
        if not columns:
            return None
        for column in columns:
            room = limit.room[column] - near[~scalable, column].sum()
            if room <= 0:
                return None
            power = _measure_power(near[:, column], far[:, column])
            shares.append(near[:, column] / room * np.exp(power * x))
            powers.append(power)
    touched = scalable & (np.array(shares) > 0).any(axis=0)
    if not touched.any():
        return None
    variances = np.array([noise_variance(request["mechanism"]) for request in body["mechanisms"]])
    best = NoiseProgram(
        variances[touched], np.array(shares)[:, touched], np.array(powers)[:, touched]
    ).minimise()
    if best is None:
        return None
    solution = np.zeros(len(x))
    solution[touched] = np.where(best < _SMALLEST, 0.0, best)
    return solution


def _choose_columns(limit: RuleLimit, losses: Matrix) -> tuple[int, ...]:
    """Return the certificates that must hold: all of them, or the one that is least used."""
    total = losses.sum(axis=0)
    usable = tuple(column for column in limit.columns if total[column] < INFINITE)
    if limit.require_all:
        return usable if len(usable) == len(limit.columns) else ()
    return tuple(sorted(usable, key=lambda column: total[column] / limit.room[column])[:1])


def _measure_power(near: Vector, far: Vector) -> Vector:
    """Return the power with which each loss falls from `near` to `far` as noise grows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(far > 0, np.log(near / far) / np.log(_PROBE), 0.0)
    measured: Vector = np.clip(power, 0.2, 4.0)
    return measured


def _losses_to_limit(limit: RuleLimit, mechanisms: Sequence[ResolvedMechanism]) -> Matrix:
    """Return the loss that each mechanism adds at a limit: mechanisms × certificates."""
    section = limit.section
    matches, _ = match_mechanisms(section, mechanisms)
    unit = int(section.unit_positions(np.array([limit.number]))[0])
    losses = np.zeros((len(mechanisms), len(limit.room)))
    for position, (mechanism, match) in enumerate(zip(mechanisms, matches, strict=True)):
        if match is None or limit.number not in section.compiled.index.rules_for_match(match):
            continue
        if limit.includes(mechanism.region):
            losses[position] = mechanism.costs[unit]
    return losses


def _bisect(trials: DecisionTrials, body: Body, x: Vector) -> Body | None:
    """Return the allowed release of least noise on the line from the stated noise through `x`.

    The search starts at `x` with small steps, because `x` is close to the border.
    """
    low, high, step, part = 0.0, math.inf, 0.002, 1.0
    allowed: Body | None = None
    for _ in range(MAX_BISECTIONS):
        if float((part * x).max()) > MAX_LOG_FACTOR:
            break
        changed = _scale(body, part * x)
        if trials.is_allowed(changed):
            allowed, high = changed, part
        else:
            low = part
        if low == 0.0 or high == math.inf:
            part = max(part * (1 - step), 0.0) if high < math.inf else part * (1 + step)
            step = min(step * 4, 0.5)
        else:
            part = (low + high) / 2
        if (high - low) * float(x.max()) < _SMALLEST / 2:
            break
    return allowed
