"""What became of a batch: who won, why others lost and what would fit, and what budgets are worth.

All of it follows from the policy, the requests and past decisions; nothing of it looks at data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.allocation.market import Market
from dpolicy.privacy.budget import as_json
from dpolicy.releases.decision import Decision
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Binding:
    """A rule that keeps a release out, and what as much again as is left of it would be worth."""

    rule: str
    unit: str
    price: float | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"rule": self.rule, "unit": self.unit, "price": self.price}


@dataclass(frozen=True, slots=True)
class Loser:
    """A release that was not chosen: whether it would fit alone, what it does not fit beside, and
    what would fit instead once the winners are charged.

    Without anything that binds it would still fit: ask again. `later` is what earlier rounds paid
    for what it takes.
    """

    release: str
    fits_alone: bool
    refused: tuple[str, ...]
    binding: tuple[Binding, ...]
    would_fit: tuple[Mapping[str, Any], ...] = ()
    later: float | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "fits-alone": self.fits_alone,
            "refused": list(self.refused),
            "binding": [binding.as_json() for binding in self.binding],
            "would-fit": [dict(offer) for offer in self.would_fit],
            "later": self.later,
        }


@dataclass(frozen=True, slots=True)
class Price:
    """What one more unit of a rule's ε, ρ or μ would be worth to this batch, about."""

    rule: Rule
    notion: str
    worth: float

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "budget": as_json(self.rule.budget),
            "one-more": self.notion,
            "worth": self.worth,
        }


@dataclass(frozen=True, slots=True)
class Shared:
    """What became of a batch: its worth, the most that any choice could be worth, and for whom.

    `decisions` are those of the winners, and of releases that were decided before; nothing in a
    dry run, where `chosen` still tells the winners and `known` those that were decided before.
    `market` has the prices of this round too.
    """

    utility: float
    bound: float
    gap: float
    chosen: tuple[str, ...]
    known: tuple[str, ...]
    losers: tuple[Loser, ...]
    prices: tuple[Price, ...] = ()
    decisions: tuple[Decision, ...] = ()
    market: Market | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "utility": self.utility,
            "bound": self.bound,
            "gap": self.gap,
            "chosen": list(self.chosen),
            "decided-before": list(self.known),
            "losers": [loser.as_json() for loser in self.losers],
            "prices": [price.as_json() for price in self.prices],
            "decisions": [decision.as_json() for decision in self.decisions],
        }
