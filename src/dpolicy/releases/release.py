"""Release requests: what an analyst asks the decision point to allow (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, TouchedDays

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


@dataclass(frozen=True, slots=True)
class Release:
    """Mechanisms that are charged together; `id` is an idempotency key that never expires.

    `body` holds the same release as plain values; the ledger records it. The decision point charges
    `mechanisms` and records `body`, so the two must agree. `release_parser` ensures that and marks
    each release that it makes (`mark_parsed`). A release that was built by hand, copied with
    `dataclasses.replace`, or whose body was changed afterwards is not marked (`is_parsed`); the
    decision point then ignores its `mechanisms` and parses its body again.
    """

    id: str
    by: str
    utility: Fraction | None
    mechanisms: tuple[MechanismRequest, ...]
    body: Mapping[str, Any] = field(repr=False)
    #: `repr` of the body when it was parsed: cheap to make, and different for another body.
    _parsed_body: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def is_parsed(self) -> bool:
        """Return whether `mechanisms` were parsed from `body` and nothing has changed since."""
        return self.was_parsed_from(self.body)

    def was_parsed_from(self, body: Mapping[str, Any]) -> bool:
        """Return whether all fields were parsed from a body that is equal to this one."""
        stated = (body.get("release"), body.get("by", ""), body.get("utility"))
        return stated == (self.id, self.by, self.utility) and self._parsed_body == repr(body)


def mark_parsed(release: Release) -> Release:
    """Mark a release whose mechanisms were parsed from its body; only `release_parser` may."""
    object.__setattr__(release, "_parsed_body", repr(release.body))
    return release
