"""Relabelling: correct what a recorded release states about its mechanisms.

A correction may add or replace attributes and labels, and may state the unit and the relation that
the release left out. The mechanisms, what they select, and the author stay. One person may raise
charges; a correction that lowers a charge needs a second person, because it returns budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpolicy.decisions.decide import charges_at_most, charges_by_region
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import OperationRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import ReleaseRelabelled, release_body_in
from dpolicy.pdp.commands import meaning_text
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.state.charge_groups import PENDING_MEANINGS
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import ReleaseEntry
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    period_within,
)
from dpolicy.releases.body import Body
from dpolicy.releases.meaning import ReleaseMeaning, meaning_from_text
from dpolicy.releases.release import Release


def relabel_release(log: WriteTransaction, release: Release, because: str, by: str) -> int:
    """Record a correction that lowers no charge. Raise `OperationRejected`."""
    event = relabelled_event(log, release, because, by)
    entry = log.state.entries[release.id]
    if lowers_charge(log.state, entry, release, event.meaning or ""):
        raise OperationRejected(
            f"the correction of `{release.id}` may lower a charge; a second person must approve it "
            "(`propose_relabelling`)",
            "second-person",
        )
    return log.append(event)


def relabelled_event(
    log: WriteTransaction, release: Release, because: str, by: str
) -> ReleaseRelabelled:
    """Return the event of a correction. Raise `OperationRejected`."""
    ensure_relabellable(log, release, because)
    meaning = meaning_text(log.state, release)
    return ReleaseRelabelled(log.timestamp, by, because, release.id, release.body, meaning)


def ensure_relabellable(log: WriteTransaction, release: Release, because: str) -> None:
    """Raise `OperationRejected` or `ReleaseRejected` if a release cannot be corrected so."""
    entry = log.state.entries.get(release.id)
    if entry is None:
        raise OperationRejected(f"there is no release `{release.id}`", "not-found")
    if not because.strip():
        raise OperationRejected(
            "`because` is required: relabelling changes which rules are charged",
            "because-missing",
        )
    problem = find_forbidden_change(release_body_in(log.event(entry.charge_record)), release.body)
    if problem is not None:
        raise OperationRejected(problem)
    if log.state.enforced is not None:
        resolve_or_reject(release, log.state.enforced)


def find_forbidden_change(recorded: Body, corrected: Body) -> str | None:
    """Return why a body is not a correction of a recorded one; None if it is."""
    if recorded.get("by", "") != corrected.get("by", ""):
        return "relabelling must keep `by`, the author of the release"
    if len(recorded["mechanisms"]) != len(corrected["mechanisms"]) or any(
        encode_canonical(_fixed_fields(old)) != encode_canonical(_fixed_fields(new, old))
        for old, new in zip(recorded["mechanisms"], corrected["mechanisms"], strict=True)
    ):
        return (
            "relabelling must keep the mechanisms; only attributes, labels, names, and a unit or "
            "relation that was left out may change"
        )
    return None


def _fixed_fields(
    fields: Mapping[str, Any], recorded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields of a mechanism that a correction must keep.

    A unit or relation that the recorded mechanism left out may be added.
    """
    free = {"attributes", "labels", "name"}
    if recorded is not None:
        free |= {"unit", "relation"} - recorded.keys()
    return {key: value for key, value in fields.items() if key not in free}


def lowers_charge(state: LedgerState, entry: ReleaseEntry, release: Release, meaning: str) -> bool:
    """Return whether a correction may lower a charge, now or under another policy.

    It does not if it keeps every recorded statement or makes it larger (`_is_at_least`), and if no
    rule of the active policy is charged less.
    """
    recorded = state.charge_groups[entry.charge_group].meaning
    if recorded in PENDING_MEANINGS or meaning in PENDING_MEANINGS or state.enforced is None:
        return True
    if not _is_at_least(meaning_from_text(meaning), meaning_from_text(recorded)):
        return True
    section = state.enforced.cumulative
    old_charges = state.charges_for_release(entry)
    mechanisms = resolve_or_reject(release, state.enforced)
    matches = [section.compiled.index.possible_match(m.predicate_input) for m in mechanisms]
    month = state.charge_groups[entry.charge_group].month
    new_charges = charges_by_region(section, mechanisms, matches, month)
    return not charges_at_most(section, old_charges, new_charges)


def _is_at_least(new: ReleaseMeaning, old: ReleaseMeaning) -> bool:
    """Return whether a corrected meaning costs no unit less than the recorded one.

    All attributes, labels, relations and definitions must stay; attributes may be added. A label
    that was unknown or left out may match every rule, so stating it can lower a charge.
    """
    return (
        all(new.partitions.get(name) == recorded for name, recorded in old.partitions.items())
        and all(
            set(before.attributes) <= set(after.attributes)
            and before.labels == after.labels
            and before.relation == after.relation
            and _is_smaller_unit(new.units[after.unit], old.units[before.unit], after.relation)
            for after, before in zip(new.mechanisms, old.mechanisms, strict=True)
        )
        and _keeps_restatements(new, old)
    )


def _is_smaller_unit(new: PrivacyUnit, old: PrivacyUnit, relation: NeighbouringRelation) -> bool:
    """Return whether a statement for `new` costs no unit less than the same one for `old`.

    Under `change`, a smaller period needs at least as many steps to every unit. Under `add-remove`,
    a part of a unit takes two steps, so a smaller period can cost less.
    """
    if (new.entity, new.period) == (old.entity, old.period):
        return True
    is_within = new.entity == old.entity and period_within(new.period, old.period)
    return is_within and relation is NeighbouringRelation.CHANGE


def _keeps_restatements(new: ReleaseMeaning, old: ReleaseMeaning) -> bool:
    """Return whether units that both meanings define have the same definition."""
    common = new.units.keys() & old.units.keys()
    return all(
        (new.units[name].entity, new.units[name].period)
        == (old.units[name].entity, old.units[name].period)
        for name in common
    )
