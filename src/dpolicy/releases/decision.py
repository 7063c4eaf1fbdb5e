"""Decisions with their reasons and counter-offers (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpolicy.releases.texts.amount_text import budget_text, location_text, loss_text
from dpolicy.releases.texts.stated_delta import reason_delta_text
from dpolicy.text.summaries import html_line, html_table, list_names, one_line

#: The notion of the budget → the loss in that notion, rounded up; None if it is infinite.
DisplayedLoss = Mapping[str, float | None]

#: Method of a reason whose ε is certified by the loss distribution of the release.
LOSS_DISTRIBUTION = "loss distribution"


def stated_delta(loss: DisplayedLoss) -> float:
    """Return the stated δ of a loss; 0 if it has none, or if the loss is unbounded."""
    delta = loss.get("delta") or 0.0
    return 0.0 if delta >= 1 and None in loss.values() else delta


@dataclass(frozen=True, slots=True)
class Reason:
    """Status of one rule in a decision: loss before and after the release, and its cost alone.

    `location` is where the rule is exceeded or most used; it is empty if the status is the same
    everywhere. `leaks` has the limit of stated δ, None for an unlimited budget. `binding` is the
    quantity that is exceeded or most used: the notion of the budget, `delta` or `both`. Both are
    None in records before version 0.3. `method` is `LOSS_DISTRIBUTION` if the ε of the release is
    certified by its loss distribution, and empty if a filter gives the losses.

    `spenders` are the releases with the largest cost to the rule. `cause` names the property of the
    release without which the rule would hold. Both are advice, which the ledger does not record.
    """

    rule: str
    policies: tuple[str, ...]
    unit: str
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    cost: DisplayedLoss
    after: DisplayedLoss
    holds: bool
    source: str
    each_release: bool
    spenders: tuple[str, ...] = field(default=(), compare=False)
    location: Mapping[str, str | int] = field(default_factory=dict)
    leaks: Mapping[str, float | None] | None = None
    binding: str | None = None
    cause: str = field(default="", compare=False)
    method: str = ""

    @property
    def exceeds_loss(self) -> bool:
        """True if the release exceeds the budget in its own notion."""
        if self.holds or self.leaks is not None:
            return not self.holds and self.binding != "delta"
        return not _is_within(self.after, self.budget)

    @property
    def exceeds_delta(self) -> bool:
        """True if the stated δ exceed the part of δ that is kept for them."""
        if self.holds or self.leaks is not None:
            return not self.holds and self.binding in ("delta", "both")
        return _is_within(self.after, self.budget)

    @property
    def stated_deltas(self) -> tuple[float, float, float]:
        """The sum of stated δ before the release, of the release, and after it."""
        return stated_delta(self.spent), stated_delta(self.cost), stated_delta(self.after)

    @property
    def delta_limit(self) -> float | None:
        """The limit of stated δ; None if it has none, or if the record does not state it."""
        return None if self.leaks is None else self.leaks["limit"]

    def __repr__(self) -> str:
        spent, after = loss_text(self.spent, self.budget), loss_text(self.after, self.budget)
        change = f"{spent} → {after} of {budget_text(self.budget)}"
        place = location_text(self.location)
        exceeded = "" if self.holds else "exceeded"
        parts = (self.rule, f"unit {self.unit}", place and f"at {place}", change, exceeded)
        return one_line(self, *parts, reason_delta_text(self) or "")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> Reason:
        """Return the reason of a recorded JSON object."""
        return Reason(
            rule=payload["rule"],
            policies=tuple(payload["policies"]),
            unit=payload["unit"],
            budget=_delta_last(payload["budget"]),
            spent=_delta_last(payload["spent"]),
            cost=_delta_last(payload["cost"]),
            after=_delta_last(payload["after"]),
            holds=payload["holds"],
            source=payload["source"],
            each_release=payload["each-release"],
            spenders=tuple(payload["spent-most"]),
            location=payload["at"],
            leaks=payload.get("leaks"),
            binding=payload.get("binding"),
            cause=payload.get("cause", ""),
            method=payload.get("method", ""),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the reason as a JSON object with the keys of the API.

        A reason of a record before version 0.3 has no `leaks` and no `binding`.
        """
        delta_side: dict[str, Any] = {}
        if self.leaks is not None:
            delta_side = {"leaks": dict(self.leaks), "binding": self.binding}
        return {
            "rule": self.rule,
            "policies": list(self.policies),
            "unit": self.unit,
            "at": dict(self.location),
            "budget": self.budget,
            "spent": dict(self.spent),
            "cost": dict(self.cost),
            "after": dict(self.after),
            "holds": self.holds,
            "source": self.source,
            "each-release": self.each_release,
            "spent-most": list(self.spenders),
            **delta_side,
            **({"cause": self.cause} if self.cause else {}),
            **({"method": self.method} if self.method else {}),
        }


def _delta_last(values: Any) -> Any:
    """Return a recorded loss or budget in the order in which it is displayed: δ is last."""
    if not isinstance(values, dict) or "delta" not in values:
        return values
    ordered = dict(values)
    ordered["delta"] = ordered.pop("delta")
    return ordered


def _is_within(loss: DisplayedLoss, budget: Mapping[str, Any] | str) -> bool:
    """Return whether a displayed loss is within a budget, in the notion of the budget."""
    if isinstance(budget, str):
        return True
    renyi = budget.get("renyi", {})
    limits = {**budget, **{f"renyi {order}": value for order, value in renyi.items()}}
    amounts = [(value, limits[key]) for key, value in loss.items() if key != "delta"]
    return all(value is not None and value <= limit for value, limit in amounts)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a release: the answer to the client, which the ledger records.

    A decision is true if the release is allowed, so `if point.submit(release):` is safe.
    `sequence` is the number of its record, None for a dry run. `replayed` is true if the decision
    was recorded for an earlier request with the same id. `counter_offers` are advice: an
    answer has them, the ledger does not record them, and equality ignores them.
    """

    release: str
    allowed: bool
    policy: str
    reasons: tuple[Reason, ...]
    uncovered: tuple[str, ...] = ()
    predicate_errors: tuple[str, ...] = ()
    counter_offers: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    sequence: int | None = None
    replayed: bool = False

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        exceeded = self.exceeded_rules
        return one_line(
            self,
            f"{self.release} {'allowed' if self.allowed else 'denied'}",
            f"exceeds {list_names(exceeded)}" if exceeded else "",
            f"not covered: {list_names(self.uncovered)}" if self.uncovered else "",
            f"{len(self.predicate_errors)} predicate errors" if self.predicate_errors else "",
            "dry run" if self.sequence is None else f"record {self.sequence}",
        )

    def _repr_html_(self) -> str:
        header = ("rule", "unit", "at", "before", "after", "budget", "alone", "", "stated δ")
        rows = [
            (
                reason.rule,
                reason.unit,
                location_text(reason.location),
                loss_text(reason.spent, reason.budget),
                loss_text(reason.after, reason.budget),
                budget_text(reason.budget),
                loss_text(reason.cost, reason.budget),
                "" if reason.holds else "exceeded",
                reason_delta_text(reason) or "",
            )
            for reason in self.reasons
        ]
        return html_table(repr(self)[1:-1], header, rows)

    @property
    def exceeded_rules(self) -> tuple[str, ...]:
        """Names of the exceeded rules."""
        return tuple(reason.rule for reason in self.reasons if not reason.holds)

    def at_record(self, sequence: int) -> Decision:
        """Return a copy with the number of its record."""
        return replace(self, sequence=sequence)

    def as_replay(self) -> Decision:
        """Return a copy that is marked as a replay."""
        return replace(self, replayed=True)

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> Decision:
        """Return the decision of a recorded JSON object."""
        return Decision(
            release=payload["release"],
            allowed=payload["decision"] == "allow",
            policy=payload["policy"],
            reasons=tuple(Reason.from_json(reason) for reason in payload["reasons"]),
            uncovered=tuple(payload["uncovered"]),
            predicate_errors=tuple(payload["errors"]),
            counter_offers=tuple(payload["would-fit"]),
            sequence=payload["sequence"],
        )

    def as_json(self) -> dict[str, Any]:
        """Return the decision as a JSON object with the keys of the API."""
        return {
            "release": self.release,
            "decision": "allow" if self.allowed else "deny",
            "sequence": self.sequence,
            "replayed": self.replayed,
            "policy": self.policy,
            "reasons": [reason.as_json() for reason in self.reasons],
            "uncovered": list(self.uncovered),
            "errors": list(self.predicate_errors),
            "would-fit": [dict(offer) for offer in self.counter_offers],
        }
