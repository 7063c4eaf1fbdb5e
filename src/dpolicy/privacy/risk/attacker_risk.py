"""Attacker risk: upper bounds on the success of every attacker, from the bounds on a loss.

The attacker knows everything but one fact about one privacy unit: which of two neighbouring data
sets is the true one. All numbers are worst cases over people, outputs and prior knowledge, rounded
up (theory/risk). The risk of a budget is guaranteed for adaptive releases. The risk of a loss that
was spent adaptively is an accounting value, as its ε is (theory 2.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import SATURATION
from dpolicy.privacy.cost_report import CostReport, round_up_to_printed_float
from dpolicy.privacy.risk.renyi_curves import RenyiCurve, ZcdpCurve
from dpolicy.privacy.risk.tradeoff_curves import (
    MAX_EXPONENT,
    SMALLEST_GAP,
    SMALLEST_RATE,
    GaussianCurve,
    PureCurve,
    TradeoffCurve,
    exp_up,
)

#: δ of the posterior if the caller states none: the δ at which `dpolicy cost` computes ε.
DEFAULT_DELTA = Fraction("1e-7")

#: Priors and false-positive rates of `AttackerRisk.as_json`.
PRIORS = (0.5, 0.1, 0.01)
FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)

#: Probability of a larger belief than `posterior`, per probability of a leak (theory/risk,
#: statement 5): with 10, a leak lets the odds grow by 10/9 more.
FAILURES_PER_LEAK = 10

_ZERO, _ONE = Fraction(0), Fraction(1)

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class AttackerRisk:
    """Success of the best attacker against a loss, at most; 1 where there is no bound.

    `delta` is the probability with which a belief may exceed the posterior, if the loss has no
    bound in pure DP and no leak.
    """

    report: CostReport
    delta: Fraction

    @property
    def is_bounded(self) -> bool:
        """Whether the loss has any bound."""
        return bool(self._curves)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest share of true claims that a test recognises at this false alarm."""
        rate = _probability("false_positive_rate", false_positive_rate)
        kept = 1 - self.report.delta
        inner = self._true_positive_rate(rate / kept) if rate < kept else _ONE
        return _round_up(kept * inner + self.report.delta)

    def tradeoff_curve(
        self, false_positive_rates: Iterable[float]
    ) -> tuple[tuple[float, float], ...]:
        """Return pairs of a false-positive rate and the largest true-positive rate."""
        return tuple((rate, self.true_positive_rate(rate)) for rate in false_positive_rates)

    def reconstruction(self, baseline: float) -> float:
        """Return the largest success of a reconstruction, if `baseline` succeeds without a release.

        It is the true-positive rate at this false-positive rate (Hayes et al. 2023).
        """
        _check_probability("baseline", baseline)
        return self.true_positive_rate(baseline)

    def posterior(self, prior: float) -> float:
        """Return the largest belief that an attacker with this prior reaches.

        A larger belief has probability at most `posterior_failure`.
        """
        chance = _probability("prior", prior)
        growth = self._odds_growth
        if growth is None:
            return 1.0 if chance else 0.0
        odds = chance * growth
        return _round_up(odds / (1 - chance + odds))

    @property
    def posterior_failure(self) -> float:
        """Probability with which a belief may exceed `posterior`; 0 under pure DP."""
        growth = self._odds_growth
        if growth is not None and not self.report.delta and growth == self._pure_growth:
            return 0.0
        return _round_up(self._failure)

    @property
    def advantage(self) -> float:
        """Largest difference between true-positive and false-positive rate."""
        return _round_up(self._with_leak(self._advantage))

    def guess(self, prior: float) -> float:
        """Return the largest probability that an attacker with this prior guesses correctly."""
        chance = _probability("prior", prior)
        smaller = min(chance, 1 - chance)
        if not smaller:
            return 1.0
        ratio = (1 - smaller) / smaller
        excess = min((curve.excess(ratio) for curve in self._curves), default=_ONE)
        return _round_up(1 - smaller + smaller * self._with_leak(min(excess, self._advantage)))

    def as_json(self) -> dict[str, object]:
        """Return the numbers that people compare, for `PRIORS` and `FALSE_POSITIVE_RATES`."""
        posteriors, rates, failure, advantage = _compared_numbers(self)
        return {
            "posterior": dict(posteriors),
            "posterior-failure": failure,
            "tpr": dict(rates),
            "advantage": advantage,
        }

    @property
    def _curves(self) -> tuple[TradeoffCurve, ...]:
        return tuple(_curves(self.report))

    @property
    def _advantage(self) -> Fraction:
        limit = _ONE
        for curve in self._curves:
            limit = curve.advantage(limit)
        return limit

    def _with_leak(self, success: Fraction) -> Fraction:
        return (1 - self.report.delta) * min(success, _ONE) + self.report.delta

    def _true_positive_rate(self, rate: Fraction) -> Fraction:
        """Return the smallest bound of all curves, outside of leaks."""
        if not rate:
            return _ZERO if self._curves else _ONE
        limit = _ONE
        if rate < 1 - SMALLEST_GAP:
            for curve in self._curves:
                limit = curve.true_positive_rate(max(rate, SMALLEST_RATE), limit)
        return limit

    @property
    def _failure(self) -> Fraction:
        return max(self.delta, FAILURES_PER_LEAK * self.report.delta)

    @property
    def _odds_growth(self) -> Fraction | None:
        """Return the factor by which the odds of a belief may grow; None without a bound.

        A belief that grows more is a test with a true-positive rate of at most `_failure`.
        """
        leak, failure = self.report.delta, self._failure
        rate = (failure - leak) / (1 - leak) if failure < 1 - SMALLEST_GAP else _ONE
        if rate == 1:
            return None
        if rate < SMALLEST_RATE:
            return None if leak else self._pure_growth
        smallest = _ZERO
        for curve in self._curves:
            smallest = curve.false_positive_rate(rate, smallest)
        return failure / ((1 - leak) * smallest) if smallest else None

    @property
    def _pure_growth(self) -> Fraction | None:
        pure = self.report.pure
        return None if pure is None or pure > MAX_EXPONENT else exp_up(pure)


def attacker_risk(report: CostReport, delta: Fraction = DEFAULT_DELTA) -> AttackerRisk:
    """Return the risk of a loss. `delta` is the δ at which posteriors are computed."""
    return AttackerRisk(report, delta)


def risk_of_budget(budget: Budget, delta: Fraction = DEFAULT_DELTA) -> AttackerRisk:
    """Return the risk that a budget permits, also to adaptively chosen releases.

    (ε, δ)-DP is ε-DP outside of a leak of probability δ (Kairouz et al. 2015). Its posteriors use
    the δ of the budget.
    """
    match budget:
        case EpsilonDelta(epsilon=epsilon, delta=leak):
            return AttackerRisk(CostReport(epsilon, None, None, (), leak), leak or delta)
        case Zcdp(rho=rho):
            return AttackerRisk(CostReport(None, rho, None, (), _ZERO), delta)
        case Gdp(mu=mu):
            return AttackerRisk(CostReport(None, None, mu * mu, (), _ZERO), delta)
        case Renyi(orders=orders):
            return AttackerRisk(CostReport(None, None, None, orders, _ZERO), delta)
        case Unlimited():
            return AttackerRisk(CostReport(None, None, None, (), _ZERO), delta)


@lru_cache(maxsize=1024)
def _compared_numbers(
    risk: AttackerRisk,
) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...], float, float]:
    """Return the numbers of `as_json`; thousands of rules have few distinct budgets."""
    return (
        tuple((str(prior), risk.posterior(prior)) for prior in PRIORS),
        tuple((str(rate), risk.true_positive_rate(rate)) for rate in FALSE_POSITIVE_RATES),
        risk.posterior_failure,
        risk.advantage,
    )


def _curves(report: CostReport) -> Iterator[TradeoffCurve]:
    """Yield the curve of every notion with a bound; no loss is a pure ε of 0."""
    amounts = (report.pure, report.rho, report.mu_squared, *(value for _, value in report.renyi))
    if 0 in amounts:
        yield PureCurve(_ZERO)
        return
    if report.pure is not None and report.pure <= MAX_EXPONENT:
        yield PureCurve(report.pure)
    if report.mu is not None and report.mu < SATURATION:
        yield GaussianCurve(report.mu)
    if report.rho is not None and report.rho < SATURATION:
        yield ZcdpCurve(round_up_to_printed_float(report.rho))
    for order, value in _far_apart_first(report.renyi):
        if value is not None and value < SATURATION:
            yield RenyiCurve(float(order), round_up_to_printed_float(value))


def _far_apart_first(items: Sequence[_Item]) -> list[_Item]:
    """Return the items in another order: a curve that lowers no bound so far is cheap."""
    return list(dict.fromkeys((*items[::8], *items[::2], *items)))


def _round_up(value: Fraction) -> float:
    return min(round_up_to_printed_float(value), 1.0)


def _probability(name: str, value: float) -> Fraction:
    """Return the printed decimal of a probability. Raise `InvalidValue` if it is none."""
    _check_probability(name, value)
    return Fraction(repr(float(value)))


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidValue("M006", f"`{name}` is {value}; help: give a number from 0 to 1")
