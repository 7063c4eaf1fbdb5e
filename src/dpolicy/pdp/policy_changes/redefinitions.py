"""Redefinitions: names of a candidate policy that recorded releases used with another definition.

The recorded meaning stays, so no charge falls. But the same name would have two meanings, and the
officer must choose: take another name, or accept that the recorded releases are charged to the
rules of the new definition by group privacy (units), for all values (partitions), or to every rule
that they may match (labels).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dpolicy.decisions.completion import define_partition
from dpolicy.decisions.recorded_names import (
    is_label_value,
    is_same_partition,
    is_same_unit,
    is_selectable,
)
from dpolicy.ledger.canonical import decode_canonical
from dpolicy.pdp.state.charge_groups import PENDING_MEANINGS, ChargeGroup, Pause, never_pause
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.body import release_from_body
from dpolicy.releases.meaning import ReleaseMeaning, meaning_from_text
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy

#: Number of releases that a redefinition names.
MAX_NAMED_RELEASES = 5


class UsedName(NamedTuple):
    """A kind of name (`unit`, `label` or `partition`) and a name."""

    kind: str
    name: str


def find_redefinitions(state: LedgerState, candidate: CompiledPolicy) -> list[Redefinition]:
    """Return the redefined names that charged releases use, sorted.

    A redefinition that the active policy already made was accepted then.
    """
    return RedefinedNames(candidate, state.policy).find_users(state)


class RedefinedNames:
    """The names that a candidate policy redefines, by charge group. Mutable.

    It looks at each group once, so it can follow a state that grows under the same `active` policy.
    """

    def __init__(
        self,
        candidate: CompiledPolicy,
        active: CompiledPolicy | None,
        pause: Pause = never_pause,
    ) -> None:
        self._candidate, self._active, self._pause = candidate, active, pause
        self._names: dict[int, set[UsedName]] = {}
        self._next = 0

    def find_users(self, state: LedgerState) -> list[Redefinition]:
        """Return the redefined names that charged releases use, sorted."""
        users = self._find_groups(state.charge_groups)
        return [_describe(used, users[used], state) for used in sorted(users)]

    def find_names(self, groups: Sequence[ChargeGroup]) -> list[str]:
        """Return the names of the redefinitions that charged releases use, sorted."""
        return [Redefinition(*used, (), 0).name for used in sorted(self._find_groups(groups))]

    def _find_groups(self, groups: Sequence[ChargeGroup]) -> dict[UsedName, list[ChargeGroup]]:
        for group in groups[self._next :]:
            redefined = self._find_redefined(group)
            if redefined:
                self._names[group.number] = redefined
            self._pause()
        self._next = len(groups)
        users: dict[UsedName, list[ChargeGroup]] = {}
        for number, redefined in self._names.items():
            for used in redefined if groups[number].count else ():
                users.setdefault(used, []).append(groups[number])
        return users

    def _find_redefined(self, group: ChargeGroup) -> set[UsedName]:
        if group.meaning in PENDING_MEANINGS:
            return set()
        redefined = set(_find_redefined(group, self._candidate))
        if redefined and self._active is not None:
            redefined -= {
                used
                for used in _find_redefined(group, self._active)
                if _is_same_definition(used, self._active, self._candidate)
            }
        return redefined


def _describe(used: UsedName, groups: Iterable[ChargeGroup], state: LedgerState) -> Redefinition:
    releases = [release for group in groups for release in state.spending_releases(group)]
    named = sorted(releases, key=lambda release: state.entries[release].request_record)
    return Redefinition(*used, tuple(named[:MAX_NAMED_RELEASES]), len(releases))


def _find_redefined(group: ChargeGroup, policy: CompiledPolicy) -> Iterator[UsedName]:
    """Yield the names in a group that a policy has, with another definition."""
    meaning = meaning_from_text(group.meaning)
    for name, unit in meaning.units.items():
        if name in policy.units and not is_same_unit(unit, policy.units[name]):
            yield UsedName("unit", name)
    labels = policy.schema.labels
    for mechanism in meaning.mechanisms:
        for name, value in mechanism.labels.items():
            if name in labels and not is_label_value(value, labels[name]):
                yield UsedName("label", name)
    for name in _find_redefined_partitions(group, meaning, policy):
        yield UsedName("partition", name)


def _find_redefined_partitions(
    group: ChargeGroup, meaning: ReleaseMeaning, policy: CompiledPolicy
) -> Iterator[str]:
    partitions = {str(name): partition for name, partition in policy.partitions.items()}
    for name, recorded in meaning.partitions.items():
        if name in partitions and not is_same_partition(recorded, define_partition(policy, name)):
            yield name
    if not partitions.keys() & meaning.partitions.keys():
        return
    body = {"release": "", "mechanisms": decode_canonical(group.mechanisms)}
    for request in release_from_body(body).mechanisms:
        for box in request.where:
            for name, selection in box.items():
                if name in partitions and not is_selectable(selection, partitions[name]):
                    yield name


def _is_same_definition(used: UsedName, old: CompiledPolicy, new: CompiledPolicy) -> bool:
    """Return whether two policies define a name in the same way."""
    match used.kind:
        case "unit":
            return used.name in old.units and is_same_unit(
                old.units[used.name], new.units.get(used.name)
            )
        case "label":
            return old.schema.labels.get(used.name) == new.schema.labels.get(used.name)
    before, after = (
        next((p for key, p in policy.partitions.items() if key == used.name), None)
        for policy in (old, new)
    )
    return before is not None and before == after
