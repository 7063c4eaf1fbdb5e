"""Names of an embedded release, compared with the definitions of the exporter and the reader."""

from __future__ import annotations

from collections.abc import Iterator

from dpolicy.decisions.completion import define_partition
from dpolicy.decisions.recorded_names import is_same_partition, is_same_unit
from dpolicy.releases.meaning import ReleaseMeaning
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy


def unknown_definitions(release: Release, meaning: ReleaseMeaning) -> Iterator[str]:
    """Yield the units and partitions of a release that its meaning does not define."""
    requests = release.mechanisms
    units = {request.unit for request in requests if request.unit is not None}
    units |= {name for request in requests for name in request.restatements}
    partitions = {name for request in requests for box in request.where for name in box}
    yield from (f"the unit `{name}`" for name in sorted(units - set(meaning.units)))
    yield from (f"the partition `{name}`" for name in sorted(partitions - set(meaning.partitions)))


def other_definitions(meaning: ReleaseMeaning, policy: CompiledPolicy) -> Iterator[str]:
    """Yield the units and partitions of a meaning that a policy defines otherwise, or not."""
    for name, unit in meaning.units.items():
        if not is_same_unit(unit, policy.units.get(name)):
            yield f"the unit `{name}`"
    partitions = {str(name) for name in policy.partitions}
    for name, partition in meaning.partitions.items():
        is_known = name in partitions
        if not (is_known and is_same_partition(partition, define_partition(policy, name))):
            yield f"the partition `{name}`"
