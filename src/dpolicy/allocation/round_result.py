"""What became of a batch: who won, why others lost and what would fit, and what budgets are worth.

All of it follows from the policy, the requests and past decisions; nothing of it looks at data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.privacy.budget import budget_to_json
from dpolicy.releases.decision import Decision
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class BindingRule:
    """A rule that keeps a release out, and what as much again as is left of it would be worth."""

    rule: str
    unit: str
    price: float | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"rule": self.rule, "unit": self.unit, "price": self.price}


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """A release that was not chosen: whether it would fit alone, what it does not fit beside, and
    what would fit instead once the winners are charged.

    Without anything that binds it would still fit: ask again. `later` is what earlier rounds paid
    for what it takes.
    """

    release: str
    fits_alone: bool
    refusal_reasons: tuple[str, ...]
    binding: tuple[BindingRule, ...]
    counter_offers: tuple[Mapping[str, Any], ...] = ()
    opportunity_cost: float | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "fits-alone": self.fits_alone,
            "refused": list(self.refusal_reasons),
            "binding": [binding.as_json() for binding in self.binding],
            "would-fit": [dict(offer) for offer in self.counter_offers],
            "later": self.opportunity_cost,
        }


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """What one more unit of a rule's ε, ρ or μ would be worth to this batch, about."""

    rule: Rule
    notion: str
    marginal_utility: float

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "budget": budget_to_json(self.rule.budget),
            "one-more": self.notion,
            "worth": self.marginal_utility,
        }


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """What became of a batch: its worth, the most that any choice could be worth, and for whom.

    `decisions` are those of the winners, and of releases that were decided before; nothing in a
    dry run, where `chosen` still tells the winners and `known` those that were decided before.
    `market` has the prices of this round too.
    """

    utility: float
    bound: float
    gap: float
    selected: tuple[str, ...]
    already_decided: tuple[str, ...]
    not_selected: tuple[RejectedCandidate, ...]
    prices: tuple[ShadowPrice, ...] = ()
    decisions: tuple[Decision, ...] = ()
    carried_prices: CarriedPrices | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "utility": self.utility,
            "bound": self.bound,
            "gap": self.gap,
            "chosen": list(self.selected),
            "decided-before": list(self.already_decided),
            "losers": [loser.as_json() for loser in self.not_selected],
            "prices": [price.as_json() for price in self.prices],
            "decisions": [decision.as_json() for decision in self.decisions],
        }
