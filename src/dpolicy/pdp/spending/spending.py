"""Spending: the answer to a question, as values and as JSON.

Every number is an upper bound, rounded up. ε is the smallest over all notions and a dense grid of
orders, and the exact ε composes loss distributions. Both are accounting values of releases that
were possibly chosen adaptively (theory 2.2); the guarantee of a rule is its budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.privacy.certificates import format_order
from dpolicy.privacy.cost_report import CostReport, round_up_to_printed_float
from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, attacker_risk
from dpolicy.text.summaries import html_line, one_line

#: The note beside an ε that was composed from loss distributions.
EXACT_NOTE = (
    "an accounting value: it holds for mechanisms that do not depend on earlier results, and is no "
    "guarantee against adaptive choice"
)


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the spending: a name, the number of its releases, its cost and its ε at δ."""

    name: str
    by: str
    count: int
    cost: CostReport
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class Spending:
    """What releases spent in a scope, for a unit, at the place with the largest ε at δ.

    `cost` is the composed loss there. `releases` are those with the largest costs there, of
    `release_count`; `authors` are the totals by author. `exact` is the ε of the composed loss
    distributions, None if there is none. `sequence` is the last record that counts.
    """

    scope: Mapping[str, str | None]
    unit: str
    location: Mapping[str, str | int]
    delta: Fraction
    cost: CostReport
    orders: tuple[Fraction, ...]
    exact: Fraction | None
    releases: tuple[Share, ...]
    release_count: int
    authors: tuple[Share, ...]
    notes: tuple[str, ...]
    sequence: int

    @property
    def epsilon(self) -> float | None:
        """ε at δ, rounded up; None if there is no bound, or if the stated δ exceed δ."""
        return self.cost.epsilon(self.delta)

    @property
    def rho(self) -> float | None:
        """ρ of zCDP, rounded up; None without a bound."""
        return _number(self.cost.rho)

    @property
    def mu(self) -> float | None:
        """μ of Gaussian DP, rounded up; None without a bound."""
        return self.cost.mu

    @property
    def renyi(self) -> dict[str, float | None]:
        """Rényi divergence at the orders of the policy, rounded up; None without a bound."""
        curve = dict(self.cost.renyi)
        return {format_order(order): _number(curve[order]) for order in self.orders}

    @property
    def risk(self) -> AttackerRisk:
        """What the spending lets an attacker learn about one unit, as upper bounds."""
        return attacker_risk(self.cost, self.delta)

    def __repr__(self) -> str:
        epsilon = "no ε" if self.epsilon is None else f"ε {format_up(self.epsilon)}"
        at = ", ".join(f"{name} {value}" for name, value in self.location.items())
        spent = f"{epsilon} at δ {format_down(self.delta)}"
        releases = f"{self.release_count} release{'' if self.release_count == 1 else 's'}"
        return one_line(self, f"unit {self.unit}", at, spent, releases)

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON; null where a notion has no bound."""
        return {
            "unit": self.unit,
            "at": dict(self.location),
            "scope": dict(self.scope),
            "spent": cost_to_json(self.cost, self.epsilon, self.delta),
            "risk": self.risk.as_json(),
            "renyi": self.renyi,
            "exact": {"epsilon": _number(self.exact), "note": EXACT_NOTE},
            "releases": [
                {"release": share.name, "by": share.by, "cost": self._cost(share)}
                for share in self.releases
            ],
            "release-count": self.release_count,
            "by": [
                {
                    "by": a.by,
                    "releases": a.count,
                    "cost": cost_to_json(a.cost, a.epsilon, self.delta),
                }
                for a in self.authors
            ],
            "notes": list(self.notes),
            "as-of": self.sequence,
        }

    def _cost(self, share: Share) -> dict[str, Any]:
        return cost_to_json(share.cost, share.epsilon, self.delta)


def cost_to_json(cost: CostReport, epsilon: float | None, delta: Fraction) -> dict[str, Any]:
    """Return a loss as JSON, with its ε at δ; `stated-delta` is the sum of the stated δ."""
    return {
        "epsilon": epsilon,
        "delta": float(delta),
        "rho": _number(cost.rho),
        "mu": cost.mu,
        "pure": _number(cost.pure),
        "stated-delta": _number(cost.delta) if cost.is_bounded else None,
    }


def _number(amount: Fraction | None) -> float | None:
    return None if amount is None else round_up_to_printed_float(amount)
