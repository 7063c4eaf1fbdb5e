"""Release requests: what an analyst asks the decision point to allow (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, TouchedDays
from dpolicy.text.summaries import html_line, html_table, list_names, one_line

#: Consecutive integers, both ends included.
IntegerRange = tuple[int, int]

#: The values of one partition that a mechanism reads: listed values or a range.
Selection = tuple[str, ...] | IntegerRange


@dataclass(frozen=True, slots=True)
class MechanismRequest:
    """One mechanism of a release, as stated. No name in it has been looked up in a policy.

    `where` is a union of boxes; it is empty if the mechanism reads the data of all units.
    `days_read` is None for static data, which counts for every time step.
    """

    name: str
    kind: str
    mechanism: Mechanism
    unit: str | None
    relation: NeighbouringRelation | None
    additive: bool
    restatements: Mapping[str, Mechanism]
    attributes: tuple[str, ...]
    labels: Mapping[str, str | tuple[str, ...]]
    where: tuple[Mapping[str, Selection], ...]
    days_read: TouchedDays | None

    def __repr__(self) -> str:
        attributes = f"attributes {list_names(self.attributes)}" if self.attributes else ""
        unit = f"unit {self.unit}" if self.unit else ""
        return one_line(self, self.name, self.kind, unit, attributes)

    def _repr_html_(self) -> str:
        return html_line(repr(self))


@dataclass(frozen=True, slots=True)
class Release:
    """Mechanisms that are charged together; `id` is an idempotency key that never expires.

    `body` holds the same release as plain values; the ledger records it. The decision point charges
    `mechanisms` and records `body`, so the two must agree. `release_parser` and `quick_reader`
    ensure that and mark each release that they make (`mark_parsed`). A release that was built by
    hand, copied with `dataclasses.replace`, or whose body was changed afterwards is not marked
    (`is_parsed`); the decision point then ignores its `mechanisms` and parses its body again.
    """

    id: str
    by: str
    utility: Fraction | None
    mechanisms: tuple[MechanismRequest, ...]
    body: Mapping[str, Any] = field(repr=False)
    #: `repr` of the body when it was parsed: cheap to make, and different for another body.
    _parsed_body: str | None = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        mechanisms = [f"{mechanism.name} ({mechanism.kind})" for mechanism in self.mechanisms]
        return one_line(self, self.id, self.by and f"by {self.by}", list_names(mechanisms))

    def _repr_html_(self) -> str:
        header = ("mechanism", "kind", "unit", "attributes", "labels")
        rows = [
            (
                mechanism.name,
                mechanism.kind,
                mechanism.unit or "",
                ", ".join(mechanism.attributes),
                ", ".join(f"{label}: {_label_text(v)}" for label, v in mechanism.labels.items()),
            )
            for mechanism in self.mechanisms
        ]
        return html_table(repr(self)[1:-1], header, rows)

    @property
    def is_parsed(self) -> bool:
        """Return whether `mechanisms` were parsed from `body` and nothing has changed since."""
        return self.was_parsed_from(self.body)

    def was_parsed_from(self, body: Mapping[str, Any]) -> bool:
        """Return whether all fields were parsed from a body that is equal to this one."""
        stated = (body.get("release"), body.get("by", ""), body.get("utility"))
        return stated == (self.id, self.by, self.utility) and self._parsed_body == repr(body)


def _label_text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def mark_parsed(release: Release) -> Release:
    """Mark a release whose mechanisms were parsed from its body.

    Only `release_parser` and `quick_reader` may.
    """
    object.__setattr__(release, "_parsed_body", repr(release.body))
    return release
