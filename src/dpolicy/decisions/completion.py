"""Completion: the meaning of a requested release under the policy that is active.

The decision point completes a release once, when it records the release. The record keeps the
result, so that defaults and definitions of later policies do not apply to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from dpolicy.policy.vocabulary import partition_owners
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.meaning import (
    LabelValue,
    MechanismMeaning,
    RecordedPartition,
    ReleaseMeaning,
)
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.releases.release_schema import Label
from dpolicy.rules.compiler import CompiledPolicy


class Reading(StrEnum):
    """How a release that leaves something out is read.

    `LEGACY` is for records of format 1 and 2: a mechanism without a unit was stated for the unit
    `user` if the policy had several units, and any relation was valid for any mechanism.
    """

    STRICT = "strict"
    LEGACY = "legacy"


def complete_meaning(
    release: Release, policy: CompiledPolicy, reading: Reading = Reading.STRICT
) -> ReleaseMeaning:
    """Return the meaning of a release in which `find_problems` finds no problem."""
    mechanisms = tuple(
        _complete_mechanism(request, policy, reading) for request in release.mechanisms
    )
    used_units = {own.unit for own in mechanisms} | {
        name for request in release.mechanisms for name in request.restatements
    }
    selected = {name for request in release.mechanisms for box in request.where for name in box}
    return ReleaseMeaning(
        {name: policy.units[name] for name in sorted(used_units)},
        {name: define_partition(policy, name) for name in sorted(selected)},
        mechanisms,
    )


def unit_name(
    request: MechanismRequest, units: Mapping[str, PrivacyUnit], reading: Reading
) -> str | None:
    """Return the name of the unit for which a mechanism is stated; None if it must state one.

    A mechanism without `unit` is stated for the only unit of the policy.
    """
    if request.unit is not None:
        return request.unit
    if len(units) == 1:
        return next(iter(units))
    return "user" if reading is Reading.LEGACY and "user" in units else None


def define_partition(policy: CompiledPolicy, name: str) -> RecordedPartition:
    """Return the definition of a partition of a policy."""
    partition = next(p for key, p in policy.partitions.items() if key == name)
    owners = partition_owners(partition, policy.vocabulary)
    return RecordedPartition(partition.values is not None, partition.stable, tuple(sorted(owners)))


def _complete_mechanism(
    request: MechanismRequest, policy: CompiledPolicy, reading: Reading
) -> MechanismMeaning:
    name = unit_name(request, policy.units, reading) or ""
    selected = {name for box in request.where for name in box} & policy.schema.attributes
    return MechanismMeaning(
        name,
        request.relation or policy.units[name].relation,
        tuple(sorted({*request.attributes, *selected})),
        {
            name: _complete_label(request.labels.get(name), label)
            for name, label in policy.schema.labels.items()
        },
    )


def _complete_label(value: str | tuple[str, ...] | None, label: Label) -> LabelValue:
    """Return the stated value of a label, else its default; None if there is neither."""
    if value is None or value == ():
        return label.default
    if label.many:
        return (value,) if isinstance(value, str) else tuple(sorted(set(value)))
    return value
