"""Prepared policy: the totals and conflicts of a candidate policy, computed before the write lock.

Charging all recorded releases to another policy takes time in the number of contents. A policy is
therefore prepared on a copy of the durable state, without a lock. Under the write lock only the
releases that came since are charged. The fold of the record then takes over the totals, so that
they are computed once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from dpolicy.errors import DPolicyError
from dpolicy.ledger.events import PolicyApplied
from dpolicy.pdp.policy_changes.conflicts import PolicyConflict, find_smallest_exceeded
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.policy_changes.redefinitions import RedefinedNames
from dpolicy.pdp.rule_status import rule_status_table
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.offered_totals import OfferedTotals
from dpolicy.pdp.state.open_reservations import OpenReservations
from dpolicy.pdp.state.recent_changes import RecentChanges
from dpolicy.rules.compiler import CompiledPolicy

#: Seconds of work after which a preparation lets other threads run, and seconds for which it does.
_WORK_SECONDS, _PAUSE_SECONDS = 0.001, 0.00005


class PreparationOutdated(DPolicyError):
    """The conflicts of a prepared policy changed; prepare it again."""


@dataclass(slots=True)
class PreparedPolicy:
    """A candidate policy with its totals, and its conflicts with the releases that they charge.

    `active` is the policy that was active. Mutable: `catch_up` charges what came since.
    """

    policy: CompiledPolicy
    active: CompiledPolicy | None
    offered: OfferedTotals
    redefined: RedefinedNames
    conflicts: list[PolicyConflict]

    def catch_up(self, state: LedgerState) -> list[PolicyConflict]:
        """Charge what a newer state has, and return the conflicts.

        Raise `PreparationOutdated` if other conflicts came or went since, or if the totals do not
        fit the state.
        """
        is_same = _digest(state.policy) == _digest(self.active) and not state.has_pending_groups
        if not is_same or not self.offered.fit_groups(state.charge_groups):
            raise PreparationOutdated("the active policy changed")
        totals, sequence = self.offered.totals, self.offered.sequence
        table = rule_status_table(state.with_totals(totals, sequence=sequence))
        self.offered = replace(self.offered, sequence=state.sequence)
        rules = table.section.compiled.rules
        names = [
            *self.redefined.find_names(state.charge_groups),
            *(rules[number].name for number in table.numbers[~table.holds].tolist()),
        ]
        if names != [conflict.name for conflict in self.conflicts]:
            raise PreparationOutdated("the conflicts changed")
        return self.conflicts

    def copy_offered_totals(self) -> OfferedTotals:
        """Return independent totals for another state."""
        return replace(self.offered, totals=self.offered.totals.copy())


def copy_releases(state: LedgerState) -> LedgerState:
    """Return a copy of what a preparation needs: the releases, their groups and the policy.

    Unlike `LedgerState.copy`, it has no balances, contents and proposals, which take time to copy
    under the lock of the readers. It knows no recent changes.
    """
    return LedgerState(
        head=state.head,
        enforced=state.enforced,
        entries=state.entries.copy(),
        open_reservations=OpenReservations(state.open_reservations),
        charge_groups=[group.copy() for group in state.charge_groups],
        month=state.today,
        _changes=RecentChanges(state.sequence),
    )


def prepare_policy(state: LedgerState, policy: CompiledPolicy) -> PreparedPolicy | None:
    """Compute the totals and conflicts of a candidate policy, with pauses for other threads.

    `state` is a copy that no other thread uses. Return None if the record of the policy would be
    compiled to another policy.
    """
    sources = tuple((source.name, source.text) for source in policy.sources)
    number = policy.accounting.defaults.number
    event = PolicyApplied("", "", "", policy.digest, sources, (), number)
    recorded = compile_recorded_policy(event)
    if recorded.digest != policy.digest:
        return None
    pause = _Pauses()
    under = state.with_policy(recorded, pause=pause)
    redefined = RedefinedNames(recorded, state.policy, pause)
    conflicts: list[PolicyConflict] = [*redefined.find_users(state)]
    conflicts += find_smallest_exceeded(state, under, pause)
    groups = state.charge_groups
    chain = groups[-1].chain if groups else 0
    offered = OfferedTotals(under.totals, sources, number, state.sequence, len(groups), chain)
    return PreparedPolicy(policy, state.policy, offered, redefined, conflicts)


class _Pauses:
    """Short pauses in long work, so that a thread that serves a client need not wait for it."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _WORK_SECONDS

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            time.sleep(_PAUSE_SECONDS)
            self._next = time.monotonic() + _WORK_SECONDS


def _digest(policy: CompiledPolicy | None) -> str | None:
    return policy.digest if policy else None
