"""Names in a recorded release that have the same definition under a policy.

A name that the policy defines otherwise, or no longer, is not read by the new definition:

    unit        the recorded definition is used; group privacy gives the cost for every rule
    partition   the mechanism is charged for all values of the partition
    label       the value is unknown: the mechanism is charged to every rule that it may match

A label that was left out is unknown too if the policy requires it or gives it a default. Rules are
pruned for releases that have the label, and a recorded one without it must not escape them.

Each raises a charge, or leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpolicy.decisions.completion import define_partition
from dpolicy.policy.model import Partition
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.meaning import LabelValue, RecordedPartition, ReleaseMeaning
from dpolicy.releases.release import MechanismRequest, Selection
from dpolicy.releases.release_schema import Label
from dpolicy.rules.compiler import CompiledPolicy


def known_units(meaning: ReleaseMeaning, policy: CompiledPolicy) -> dict[str, PrivacyUnit]:
    """Return the units of a record: those of the policy where the definition is the same."""
    return {
        name: policy.units[name] if is_same_unit(unit, policy.units.get(name)) else unit
        for name, unit in meaning.units.items()
    }


def is_same_unit(recorded: PrivacyUnit, unit: PrivacyUnit | None) -> bool:
    """Return whether a unit of a policy has the entity and the period of a recorded one."""
    return unit is not None and (recorded.entity, recorded.period) == (unit.entity, unit.period)


def known_boxes(
    request: MechanismRequest, meaning: ReleaseMeaning, policy: CompiledPolicy
) -> tuple[Mapping[str, Selection], ...]:
    """Return what a mechanism selects by partitions that still have their definition."""
    partitions = {str(name): partition for name, partition in policy.partitions.items()}
    same = {
        name
        for name, recorded in meaning.partitions.items()
        if name in partitions and is_same_partition(recorded, define_partition(policy, name))
    }
    return tuple(
        {
            name: selection
            for name, selection in box.items()
            if name in same and is_selectable(selection, partitions[name])
        }
        for box in request.where
    )


def is_same_partition(recorded: RecordedPartition, partition: RecordedPartition) -> bool:
    """Return whether a partition of a policy has the definition of a recorded one.

    A partition may become unstable: it then splits no rule, so that no charge falls.
    """
    is_stable_enough = recorded.stable or not partition.stable
    return is_stable_enough and recorded == replace(partition, stable=recorded.stable)


def is_selectable(selection: Selection, partition: Partition) -> bool:
    """Return whether a partition has all values that a recorded mechanism selected."""
    if partition.values is None:
        first, last = selection[0], selection[-1]
        if not (isinstance(first, int) and isinstance(last, int)):
            return False
        return (partition.first or 0) <= first <= last <= (partition.last or 0)
    return frozenset(selection) <= frozenset(map(str, partition.values))


def known_labels(
    recorded: Mapping[str, LabelValue], labels: Mapping[str, Label]
) -> tuple[dict[str, str | tuple[str, ...]], frozenset[str]]:
    """Return the recorded labels that predicates can read, and the names of unknown ones."""
    readable: dict[str, str | tuple[str, ...]] = {}
    unknown = set()
    for name, label in labels.items():
        value = recorded.get(name)
        is_known = name in recorded and is_label_value(value, label)
        if not is_known or (value is None and not label.may_be_missing):
            unknown.add(name)
        elif value is not None:
            readable[name] = value
        elif label.many:
            readable[name] = ()
    return readable, frozenset(unknown)


def is_label_value(value: LabelValue, label: Label) -> bool:
    """Return whether a recorded value is one that the label has now, or None (left out)."""
    if value is None:
        return True
    if isinstance(value, tuple) != label.many:
        return False
    values = value if isinstance(value, tuple) else (value,)
    return label.values is None or set(values) <= set(label.values)
