"""Attacker risk: upper bounds on the success of every attacker, from the bounds on a loss.

The attacker knows everything but one fact about one privacy unit: which of two neighbouring data
sets is the true one. All numbers are worst cases over people, outputs and prior knowledge, rounded
up (theory/risk). The risk of a budget is guaranteed for adaptive releases. The risk of a loss that
was spent adaptively is an accounting value, as its ε is (theory 2.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

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

#: With a stated δ, the posterior bound fails with this many δ (theory/risk, statement 4).
FAILURES_PER_DELTA = 10

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, slots=True)
class AttackerRisk:
    """Success of the best attacker against a loss, at most; 1 where there is no bound.

    `delta` is the δ at which posteriors are computed.
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

        It is the true-positive rate at this false-positive rate (Hayes et al. 2023, Theorem 2).
        """
        return self.true_positive_rate(_checked("baseline", baseline))

    def posterior(self, prior: float) -> float:
        """Return the largest belief that an attacker with this prior reaches.

        A larger belief has probability at most `posterior_failure`.
        """
        chance = _probability("prior", prior)
        loss = self._posterior_loss()
        if loss is None:
            return 1.0 if chance else 0.0
        odds = chance * loss
        return _round_up(odds / (1 - chance + odds))

    @property
    def posterior_failure(self) -> float:
        """Probability with which a belief may exceed `posterior`; 0 under pure DP."""
        if self.report.delta:
            return min(_round_up(FAILURES_PER_DELTA * self.delta), 1.0)
        return 0.0 if self._largest_loss == self.report.pure else _round_up(self.delta)

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
        return {
            "posterior": {str(prior): self.posterior(prior) for prior in PRIORS},
            "posterior-failure": self.posterior_failure,
            "tpr": {str(rate): self.true_positive_rate(rate) for rate in FALSE_POSITIVE_RATES},
            "advantage": self.advantage,
        }

    @property
    def _curves(self) -> tuple[TradeoffCurve, ...]:
        return tuple(_curves(self.report))

    @property
    def _advantage(self) -> Fraction:
        return min((curve.advantage() for curve in self._curves), default=_ONE)

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
    def _largest_loss(self) -> Fraction | None:
        losses = [curve.largest_loss(self.delta) for curve in self._curves]
        return min((loss for loss in losses if loss is not None), default=None)

    def _posterior_loss(self) -> Fraction | None:
        """Return the factor by which the odds of a belief may grow; None without a bound."""
        if not self.report.delta:
            loss = self._largest_loss
            return None if loss is None or loss > MAX_EXPONENT else exp_up(loss)
        epsilon = self.report.epsilon(self.delta)
        if epsilon is None or epsilon > MAX_EXPONENT or FAILURES_PER_DELTA * self.delta >= 1:
            return None
        return exp_up(Fraction(epsilon)) * Fraction(FAILURES_PER_DELTA, FAILURES_PER_DELTA - 1)


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
        yield ZcdpCurve(_float_up(report.rho))
    for order, value in report.renyi:
        if value is not None and value < SATURATION:
            yield RenyiCurve(float(order), _float_up(value))


def _float_up(value: Fraction) -> float:
    return round_up_to_printed_float(value)


def _round_up(value: Fraction) -> float:
    return min(round_up_to_printed_float(value), 1.0)


def _probability(name: str, value: float) -> Fraction:
    """Return the printed decimal of a probability. Raise `InvalidValue` if it is none."""
    return Fraction(repr(float(_checked(name, value))))


def _checked(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InvalidValue("M006", f"`{name}` is {value}; help: give a number from 0 to 1")
    return value
