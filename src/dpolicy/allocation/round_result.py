"""Result of an allocation round: selected and rejected candidates, counter-offers, shadow prices.

It depends on the policy, the requests and past decisions, never on data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.allocation.shadow_prices import ShadowPrice
from dpolicy.releases.decision import Decision
from dpolicy.text.summaries import html_line, html_table, list_names, one_line


@dataclass(frozen=True, slots=True)
class BindingRule:
    """Rule that prevents the selection of a candidate.

    `price` is the approximate utility gained if the remaining budget of the rule were doubled; None
    if the strategy computes no prices.
    """

    rule: str
    unit: str
    price: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the rule as JSON values."""
        return {"rule": self.rule, "unit": self.unit, "price": self.price}


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """Release that was not selected.

    `binding` are the rules in which it does not fit, alone or beside the selected releases; if it
    is empty, the release still fits and can be submitted again. `counter_offers` fit beside the
    selected releases. `opportunity_cost` is the price that earlier rounds paid for the same budget.
    """

    release: str
    fits_alone: bool
    rejection_reasons: tuple[str, ...]
    binding: tuple[BindingRule, ...]
    counter_offers: tuple[Mapping[str, Any], ...] = ()
    opportunity_cost: float | None = None

    def __repr__(self) -> str:
        binding = [rule.rule for rule in self.binding]
        reasons = f"no room in {list_names(binding)}" if binding else ""
        return one_line(self, self.release, reasons, list_names(self.rejection_reasons))

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def as_json(self) -> dict[str, Any]:
        """Return the candidate as JSON values."""
        return {
            "release": self.release,
            "feasible-alone": self.fits_alone,
            "refused": list(self.rejection_reasons),
            "binding": [binding.as_json() for binding in self.binding],
            "would-fit": [dict(offer) for offer in self.counter_offers],
            "opportunity-cost": self.opportunity_cost,
        }


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """Result of a round: its utility, an upper bound for any selection, and the candidates.

    `already_decided` are ids that were in the ledger before the round. `decisions` are those of the
    selected and of the already decided releases; a dry run has none. `carried_prices` include the
    prices of this round.
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

    def __repr__(self) -> str:
        counts = f"{len(self.selected)} selected, {len(self.not_selected)} not selected"
        return one_line(self, counts, f"utility {self.utility:g}", f"bound {self.bound:g}")

    def _repr_html_(self) -> str:
        rows = [
            *((release, "selected", "") for release in self.selected),
            *((release, "already decided", "") for release in self.already_decided),
            *((c.release, "not selected", _rejection_text(c)) for c in self.not_selected),
        ]
        return html_table(repr(self)[1:-1], ("release", "result", "because"), rows)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values; the carried prices are not included."""
        return {
            "utility": self.utility,
            "bound": self.bound,
            "gap": self.gap,
            "selected": list(self.selected),
            "already-decided": list(self.already_decided),
            "not-selected": [candidate.as_json() for candidate in self.not_selected],
            "prices": [price.as_json() for price in self.prices],
            "decisions": [decision.as_json() for decision in self.decisions],
        }


def _rejection_text(candidate: RejectedCandidate) -> str:
    return list_names([*candidate.rejection_reasons, *(rule.rule for rule in candidate.binding)])
