"""Exact optimal attackers, and naive bounds on them in 50 digits.

An `Experiment` is a list of leaves: P and Q of a branch, and the μ of a Gaussian that runs last on
this branch (0 for none). By the lemma of Neyman and Pearson the optimal test claims P where
log P/Q exceeds a threshold, so that rates, success and beliefs follow from the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp

from dpolicy.privacy.risk.attacker_risk import AttackerRisk

mp.mp.dps = 50


@dataclass(frozen=True)
class Leaf:
    """A branch of an experiment, and the Gaussian that runs on it."""

    p: Fraction
    q: Fraction
    mu: Fraction = Fraction(0)

    def masses_above(self, loss: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        """Return P and Q of the outputs whose log P/Q exceeds `loss`."""
        p, q, mu = as_mp(self.p), as_mp(self.q), as_mp(self.mu)
        if not self.p or not self.q:
            return p, mp.mpf(0)
        if not self.mu:
            return (p, q) if mp.log(p / q) > loss else (mp.mpf(0), mp.mpf(0))
        point = (loss - mp.log(p / q)) / mu + mu / 2
        return p * mp.ncdf(mu - point), q * mp.ncdf(-point)


Experiment = Sequence[Leaf]


def as_mp(value: Fraction | float) -> mp.mpf:
    exact = Fraction(value)
    return mp.mpf(exact.numerator) / exact.denominator


def rates_above(experiment: Experiment, loss: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Return true-positive and false-positive rate of the test `log P/Q > loss`."""
    masses = [leaf.masses_above(loss) for leaf in experiment]
    rounding = 1 - mp.mpf("1e-45")  # a sum of 50 digits may pass 1
    return mp.fsum(p for p, _ in masses) * rounding, mp.fsum(q for _, q in masses)


def swap(experiment: Experiment) -> Experiment:
    """Return the experiment with P and Q exchanged."""
    return [Leaf(leaf.q, leaf.p, leaf.mu) for leaf in experiment]


def printed(value: float) -> mp.mpf:
    """Return the decimal that is printed for a float: dpolicy rounds this number."""
    return as_mp(Fraction(repr(value)))


def thresholds(experiment: Experiment, extra: Sequence[float]) -> list[mp.mpf]:
    """Return thresholds just below losses of atoms, at most nine, and the extra ones."""
    atoms = {mp.log(as_mp(leaf.p) / as_mp(leaf.q)) for leaf in experiment if leaf.p and leaf.q}
    losses = sorted(atoms)[:: len(atoms) // 8 or 1]
    return [loss - mp.mpf("1e-40") for loss in losses] + [mp.mpf(x) for x in extra] + [mp.mpf(999)]


def success(experiment: Experiment, prior: float) -> mp.mpf:
    """Return the probability that the optimal attacker guesses correctly."""
    chance = printed(prior)
    true, false = rates_above(experiment, mp.log((1 - chance) / chance))
    return chance * true + (1 - chance) * (1 - false)


def belief_mass(experiment: Experiment, prior: float, belief: float) -> mp.mpf:
    """Return the probability of a posterior above `belief`, the larger of both worlds."""
    if belief >= 1:
        return mp.mpf(0)
    start, end = printed(prior), printed(belief)
    return max(rates_above(experiment, mp.log(end / (1 - end)) - mp.log(start / (1 - start))))


def find_underestimates(
    risk: AttackerRisk, experiment: Experiment, extra: Sequence[float] = (), prior: float = 0.5
) -> list[str]:
    """Return a text for every number of the risk that an optimal attacker exceeds."""
    wrong: list[str] = []
    for pair in (experiment, swap(experiment)):
        for loss in thresholds(pair, extra):
            true, false = rates_above(pair, loss)
            rate = float_up(false)
            if printed(risk.true_positive_rate(rate)) < true:
                wrong.append(f"tpr {rate}: {risk.true_positive_rate(rate)} < {mp.nstr(true, 20)}")
            if printed(risk.advantage) < true - false:
                wrong.append(f"advantage {risk.advantage} < {mp.nstr(true - false, 20)}")
        if printed(risk.guess(prior)) < success(pair, prior):
            wrong.append(f"guess {risk.guess(prior)} < {mp.nstr(success(pair, prior), 20)}")
        mass = belief_mass(pair, prior, risk.posterior(prior))
        if printed(risk.posterior_failure) < mass:
            wrong.append(f"posterior failure {risk.posterior_failure} < {mp.nstr(mass, 20)}")
    return wrong


def float_up(value: mp.mpf) -> float:
    """Return a float in [0, 1] that is at least `value`."""
    near = float(value)
    return min(near * (1 + 2.0**-50), 1.0) if near or not value else 1e-300


def pure_rate(epsilon: float, rate: float) -> mp.mpf:
    """Return the true-positive rate of ε-DP."""
    growth, a = mp.exp(as_mp(epsilon)), printed(rate)
    return min(growth * a, 1 - (1 - a) / growth)


def gaussian_rate(mu: float, rate: float) -> mp.mpf:
    """Return the true-positive rate of μ-GDP."""
    low, high = mp.mpf(-40), mp.mpf(40)
    a = printed(rate)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (low, middle) if mp.ncdf(-middle) < a else (middle, high)
    return mp.ncdf(as_mp(mu) - low)


def renyi_rate(order: float, divergence: float, rate: float) -> mp.mpf:
    """Return the largest t whose binary Rényi divergences from a are both within a bound."""
    a, alpha = printed(rate), as_mp(order)

    def moment(p: mp.mpf, q: mp.mpf) -> mp.mpf:
        return p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)

    limit = mp.exp((alpha - 1) * as_mp(divergence))
    return _largest(a, lambda t: moment(t, a) <= limit and moment(a, t) <= limit)


def _largest(low: mp.mpf, holds: Callable[[mp.mpf], bool]) -> mp.mpf:
    high = mp.mpf(1)
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
