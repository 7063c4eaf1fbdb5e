"""What an analyst is told: a decision with its reasons and counter-offers (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: A loss for people to read: the notion of the budget, and a number rounded up; None if infinite.
DisplayedLoss = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Reason:
    """How one rule stands with a release: what was spent, what it adds, and whether it holds.

    `at` is the place where it is broken or tightest; empty where it is the same everywhere.
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
    spenders: tuple[str, ...] = ()
    location: Mapping[str, str | int] = field(default_factory=dict)

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> Reason:
        """A reason from what was recorded of it."""
        return Reason(
            rule=payload["rule"],
            policies=tuple(payload["policies"]),
            unit=payload["unit"],
            budget=payload["budget"],
            spent=payload["spent"],
            cost=payload["cost"],
            after=payload["after"],
            holds=payload["holds"],
            source=payload["source"],
            each_release=payload["each-release"],
            spenders=tuple(payload["spent-most"]),
            location=payload["at"],
        )

    def as_json(self) -> dict[str, Any]:
        """The reason under the keys of the contract."""
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
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a release: at its place in the ledger, under a policy, with reasons."""

    release: str
    allowed: bool
    policy: str
    reasons: tuple[Reason, ...]
    uncovered: tuple[str, ...] = ()
    predicate_errors: tuple[str, ...] = ()
    counter_offers: tuple[Mapping[str, Any], ...] = ()
    sequence: int | None = None
    replayed: bool = False

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the rules that do not hold."""
        return tuple(reason.rule for reason in self.reasons if not reason.holds)

    def at_record(self, sequence: int) -> Decision:
        """The same decision, recorded."""
        return replace(self, sequence=sequence)

    def as_replay(self) -> Decision:
        """The same decision, given back."""
        return replace(self, replayed=True)

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> Decision:
        """A decision from what was recorded of it."""
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
        """The decision under the keys of the contract."""
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
