"""Builders of releases: the mapping that a release file has, from arguments with types.

A caller may write the mapping directly, too; `ReleaseMapping` describes it to type checkers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal, Required, SupportsFloat, SupportsIndex, TypedDict, cast

from dpolicy.releases.python.mechanism_builders import ParameterMapping

#: Consecutive integers of a partition, both ends included.
RangeMapping = TypedDict("RangeMapping", {"from": SupportsIndex, "to": SupportsIndex})

#: First and last day of the data; a missing end is open.
DaysMapping = TypedDict("DaysMapping", {"from": date | str, "to": date | str}, total=False)

#: The selected values of each partition; those of others are all selected.
WhereMapping = Mapping[str, str | Sequence[str] | RangeMapping]


class MechanismMapping(TypedDict, total=False):
    """One mechanism of a release (docs/releases.md)."""

    name: str
    mechanism: Required[ParameterMapping]
    unit: str
    relation: Literal["add-remove", "change", "replace"]
    additive: bool
    also: Mapping[str, Mapping[str, object]]
    attributes: Sequence[str]
    labels: Mapping[str, str | Sequence[str]]
    where: WhereMapping | Sequence[WhereMapping]
    time: DaysMapping


class ReleaseMapping(TypedDict, total=False):
    """A release (docs/releases.md)."""

    release: Required[str]
    by: str
    utility: SupportsFloat
    mechanisms: Required[Sequence[MechanismMapping]]


def mechanism(
    mechanism: ParameterMapping,
    *,
    attributes: Sequence[str] | None = None,
    labels: Mapping[str, str | Sequence[str]] | None = None,
    unit: str | None = None,
    where: WhereMapping | Sequence[WhereMapping] | None = None,
    time: DaysMapping | None = None,
    relation: Literal["add-remove", "change", "replace"] | None = None,
    additive: bool | None = None,
    also: Mapping[str, Mapping[str, object]] | None = None,
    name: str | None = None,
) -> MechanismMapping:
    """Return one mechanism of a release, such as `mechanism(gaussian(sigma=2))`."""
    return cast("MechanismMapping", _stated_fields(locals()))


def release(
    release: str,
    mechanisms: Sequence[MechanismMapping],
    *,
    by: str | None = None,
    utility: SupportsFloat | None = None,
) -> ReleaseMapping:
    """Return a release with the id `release`, which is an idempotency key."""
    return cast("ReleaseMapping", _stated_fields(locals()))


def _stated_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None}
