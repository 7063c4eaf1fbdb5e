"""What an analyst is told: a decision with its reasons and counter-offers (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: A loss for people to read: the notion of the budget, and a number rounded up; None if infinite.
Shown = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Reason:
    """How one rule stands with a release: what was spent, what it adds, and whether it holds.

    `at` is the place where it is broken or tightest; empty where it is the same everywhere.
    """

    rule: str
    policies: tuple[str, ...]
    unit: str
    budget: Mapping[str, Any] | str
    spent: Shown
    cost: Shown
    after: Shown
    holds: bool
    source: str
    each_release: bool
    spenders: tuple[str, ...] = ()
    at: Mapping[str, str | int] = field(default_factory=dict)

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Reason:
        """A reason from what was recorded of it."""
        return Reason(
            rule=said["rule"],
            policies=tuple(said["policies"]),
            unit=said["unit"],
            budget=said["budget"],
            spent=said["spent"],
            cost=said["cost"],
            after=said["after"],
            holds=said["holds"],
            source=said["source"],
            each_release=said["each-release"],
            spenders=tuple(said["spent-most"]),
            at=said["at"],
        )

    def as_json(self) -> dict[str, Any]:
        """The reason under the keys of the contract."""
        return {
            "rule": self.rule,
            "policies": list(self.policies),
            "unit": self.unit,
            "at": dict(self.at),
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
    failed: tuple[str, ...] = ()
    would_fit: tuple[Mapping[str, Any], ...] = ()
    sequence: int | None = None
    replayed: bool = False

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the rules that do not hold."""
        return tuple(reason.rule for reason in self.reasons if not reason.holds)

    def placed(self, sequence: int) -> Decision:
        """The same decision, recorded."""
        return replace(self, sequence=sequence)

    def again(self) -> Decision:
        """The same decision, given back."""
        return replace(self, replayed=True)

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Decision:
        """A decision from what was recorded of it."""
        return Decision(
            release=said["release"],
            allowed=said["decision"] == "allow",
            policy=said["policy"],
            reasons=tuple(Reason.from_json(reason) for reason in said["reasons"]),
            uncovered=tuple(said["uncovered"]),
            failed=tuple(said["errors"]),
            would_fit=tuple(said["would-fit"]),
            sequence=said["sequence"],
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
            "errors": list(self.failed),
            "would-fit": [dict(offer) for offer in self.would_fit],
        }
