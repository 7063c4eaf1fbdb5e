"""What an analyst asks for: a release of labelled mechanisms (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, TouchedDays

#: A run of whole numbers, both ends included.
IntegerRange = tuple[int, int]

#: What a release selects of one partition: listed values or a range.
Selection = tuple[str, ...] | IntegerRange


@dataclass(frozen=True, slots=True)
class MechanismRequest:
    """One mechanism of a release, as stated; nothing is looked up in a policy yet.

    `where` is a union of boxes, empty for everybody; `touched` is None for static data, which
    touches every time step.
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
    """Mechanisms that are charged together or not at all; `id` is the idempotency key, for ever.

    `body` is the same as plain values, as the ledger keeps it.
    """

    id: str
    by: str
    utility: Fraction | None
    mechanisms: tuple[MechanismRequest, ...]
    body: Mapping[str, Any] = field(repr=False)
