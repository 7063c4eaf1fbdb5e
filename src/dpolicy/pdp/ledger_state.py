"""Ledger state: the active policy, all releases and the charge groups, folded from the records.

The state is computed, never stored as truth: the same records always give the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.events import (
    PolicyApplied,
    check_body,
    decode_event_fast,
    from_bytes,
    mechanism_bytes,
)
from dpolicy.pdp.charge_groups import (
    NO_LEGACY_MEANING,
    PENDING_MEANINGS,
    ChargeGroup,
    Resolution,
    SpendingTotals,
    complete_recorded,
)
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.meaning import check_meaning
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy

#: Statuses of a release. Only `reserved` changes: to voided, committed or expired.
ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED = (
    "allowed",
    "denied",
    "reserved",
    "voided",
    "committed",
)
EXPIRED, IMPORTED = "expired", "imported"

#: All statuses; a snapshot stores positions in this tuple.
STATUSES = (ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED, EXPIRED, IMPORTED)

#: Statuses of releases that are charged: all except denied and voided.
SPENDING_STATUSES = frozenset({ALLOWED, RESERVED, COMMITTED, EXPIRED, IMPORTED})


class ReleaseEntry(NamedTuple):
    """Status of a release, the records of its request and its charge, and its charge group."""

    status: str
    request_record: int
    charge_record: int
    charge_group: int


class Proposal(NamedTuple):
    """A proposal, open or answered; `subject` is the id of a release or the digest of a policy.

    It permits nothing, so it is false, like a denial: `propose` returns a decision or a proposal.
    """

    number: int
    kind: str
    subject: str
    by: str
    at: str
    open: bool = True
    approved: bool = False

    def __bool__(self) -> bool:
        return False


@dataclass(slots=True)
class LedgerState:
    """Fold of the records up to `head`. Mutable.

    `enforced` is the active policy and `policy_record` the record that activated it.
    `open_reservations` has the expiry time of each. `month` is the first day of the latest month in
    the ledger; it never decreases. `now` is the first day of the reader's current month and is not
    part of the fold.

    Folding does not charge balances. Call `update_balances` before reading `balances`.
    """

    head: Record | None = None
    enforced: EnforcedPolicy | None = None
    policy_record: int = 0
    entries: dict[str, ReleaseEntry] = field(default_factory=dict)
    open_reservations: dict[str, str] = field(default_factory=dict)
    charge_groups: list[ChargeGroup] = field(default_factory=list)
    month: int = 0
    now: int = 0
    proposals: dict[int, Proposal] = field(default_factory=dict)
    _newest_proposals: dict[tuple[str, str], int] = field(default_factory=dict)
    _group_numbers: dict[tuple[str, bytes, str, int], int] = field(default_factory=dict)
    _legacy_meanings: dict[tuple[str, bytes], str] = field(default_factory=dict)
    _totals: SpendingTotals | None = None
    _changed_groups: set[int] = field(default_factory=set)

    @property
    def sequence(self) -> int:
        """The number of the last record; 0 for an empty ledger."""
        return self.head.sequence if self.head else 0

    @property
    def policy(self) -> CompiledPolicy | None:
        """The active policy."""
        return self.enforced.policy if self.enforced else None

    @property
    def today(self) -> int:
        """The first day of the month for which balances are computed."""
        return max(self.month, self.now)

    @property
    def totals(self) -> SpendingTotals:
        """Balances of the charge groups under the active policy."""
        if self._totals is None:
            raise InvariantBroken("the ledger has no policy yet")
        return self._totals

    @property
    def balances(self) -> Balances:
        """The balances of all cumulative rules. Read-only.

        Raise `InvariantBroken` if the state changed after the last `update_balances`.
        """
        totals = self.totals
        if self._changed_groups or not totals.is_current(self.today):
            raise InvariantBroken("the balances are older than the state; update them first")
        return totals.balances

    def update_balances(self) -> None:
        """Charge everything that changed since the last update; without a policy, do nothing."""
        if self._totals is not None:
            self._totals.update(self.charge_groups, self._changed_groups, self.today)
            self._changed_groups = set()

    def fold(self, records: Iterable[Record], resolution: Resolution | None = None) -> None:
        """Apply records to the state, checking the hash chain at each record.

        `resolution` has the resolved mechanisms of a single decided release, if they are known.
        """
        for record in records:
            check_chain(self.head, record)
            event_fields = decode_event_fast(record.payload)
            self.month = max(self.month, first_day_of_month(event_fields["at"]))
            self._apply(event_fields, record, resolution)
            self.head = record

    def entry(self, release: str) -> ReleaseEntry:
        """Return the entry of a release. Raise `LedgerDamaged` if there is none."""
        if release not in self.entries:
            raise LedgerDamaged(f"record refers to unknown release `{release}`")
        return self.entries[release]

    def newest_proposal(self, kind: str, subject: str) -> Proposal | None:
        """Return the newest proposal of a kind for a release or a policy."""
        return self.proposals.get(self._newest_proposals.get((kind, subject), 0))

    def propose(self, proposal: Proposal) -> None:
        """Add a proposal."""
        self.proposals[proposal.number] = proposal
        self._newest_proposals[proposal.kind, proposal.subject] = proposal.number

    def charges_for_release(self, entry: ReleaseEntry) -> tuple[Charge, ...]:
        """Return the charges of a release to the kept rules."""
        group = self.charge_groups[entry.charge_group]
        return self.totals.charges_for_group(entry.charge_group, group)

    def groups_charged_to_rule(
        self, rule: int, point: Point | None
    ) -> Iterator[tuple[ChargeGroup, LossArray]]:
        """Yield the groups that are charged to a rule, with the cost of one release.

        With a `point`, yield only groups that are charged there.
        """
        for number, row in self.totals.groups_charged_to(rule, self.charge_groups, point):
            yield self.charge_groups[number], row

    def max_groups_charged_to_rule(self, rule: int) -> int:
        """Return an upper bound on the number of groups that are charged to a rule."""
        return self.totals.max_groups_charged_to(rule, self.charge_groups)

    def spending_releases(self, group: ChargeGroup) -> Iterator[str]:
        """Yield the ids of the releases of a group that are charged."""
        for release in group.release_ids:
            entry = self.entries[release]
            if (
                entry.status in SPENDING_STATUSES
                and self.charge_groups[entry.charge_group] is group
            ):
                yield release

    def with_policy(self, policy: CompiledPolicy, more: Certificates = ()) -> LedgerState:
        """Return the state under another policy, with updated balances.

        Balances have the certificates of the policy and `more`.
        The result shares entries and charge groups with this state: read it only while this state
        does not change, and do not fold into it.
        """
        other = LedgerState(
            head=self.head,
            entries=self.entries,
            open_reservations=self.open_reservations,
            charge_groups=self.charge_groups,
            month=self.today,
        )
        other._change_policy(policy, more)
        other.update_balances()
        return other

    def restore(self, totals: SpendingTotals, policy_record: int) -> None:
        """Take over totals in which all charge groups are already charged."""
        self.enforced, self.policy_record, self._totals = totals.enforced, policy_record, totals
        self._group_numbers = {
            (group.by, group.mechanisms, group.meaning, group.month): number
            for number, group in enumerate(self.charge_groups)
        }
        for release, entry in self.entries.items():
            if entry.status in SPENDING_STATUSES:
                self.charge_groups[entry.charge_group].release_ids.append(release)

    def _apply(
        self, event_fields: dict[str, Any], record: Record, resolution: Resolution | None
    ) -> None:
        match event_fields["event"]:
            case "release-decided":
                self._add_decided_release(event_fields, record, resolution)
            case "release-imported":
                self._add_release(event_fields, record, IMPORTED)
            case "policy-applied":
                event = from_bytes(record.payload)
                if isinstance(event, PolicyApplied):
                    self.policy_record = record.sequence
                    self._change_policy(compile_recorded_policy(event))
                    self._complete_pending_groups()
            case "release-committed" if event_fields["body"] is not None:
                self._replace_charge(event_fields, record)
                self._set_status(event_fields["release"], COMMITTED)
            case "release-committed":
                self._set_status(event_fields["release"], COMMITTED)
            case "release-relabelled":
                self._replace_charge(event_fields, record)
            case "release-voided":
                self._set_status(event_fields["release"], VOIDED)
            case (
                "release-proposed"
                | "void-proposed"
                | "relabelling-proposed"
                | "policy-proposed" as name
            ):
                self._add_proposal(name.removesuffix("-proposed"), event_fields, record)
            case "proposal-answered":
                self._answer_proposal(event_fields["proposal"], event_fields["approved"])
            case _:
                self._set_status(event_fields["release"], EXPIRED)

    def _add_decided_release(
        self, event_fields: dict[str, Any], record: Record, resolution: Resolution | None
    ) -> None:
        status = RESERVED if event_fields["reserved"] else ALLOWED
        status = status if event_fields["allowed"] else DENIED
        group = self._add_release(event_fields, record, status)
        if status == RESERVED:
            self.open_reservations[event_fields["release"]] = event_fields["expires"]
        if resolution is not None and status in SPENDING_STATUSES:
            self.totals.add_resolution(group, resolution)

    def _add_release(self, event_fields: dict[str, Any], record: Record, status: str) -> int:
        """Add a release; return the number of its charge group."""
        release = event_fields["release"]
        if release in self.entries:
            raise LedgerDamaged(f"release `{release}` is recorded twice")
        group = self._find_or_add_group(event_fields, record, self.month)
        self.entries[release] = ReleaseEntry(status, record.sequence, record.sequence, group)
        if status in SPENDING_STATUSES:
            self._change_count(release, group, 1)
        return group

    def _set_status(self, release: str, status: str) -> None:
        """End a reservation with a new status."""
        entry = self.entry(release)
        self.open_reservations.pop(release, None)
        self._replace_entry(release, entry._replace(status=status))

    def _replace_charge(self, event_fields: dict[str, Any], record: Record) -> None:
        """Charge a release by another body, in the month of its old charge."""
        release = event_fields["release"]
        entry = self.entry(release)
        month = self.charge_groups[entry.charge_group].month
        group = self._find_or_add_group(event_fields, record, month)
        self._replace_entry(
            release, entry._replace(charge_record=record.sequence, charge_group=group)
        )

    def _replace_entry(self, release: str, new: ReleaseEntry) -> None:
        old = self.entries[release]
        self.entries[release] = new
        was_charged, is_charged = old.status in SPENDING_STATUSES, new.status in SPENDING_STATUSES
        if (was_charged, old.charge_group) != (is_charged, new.charge_group):
            self._change_count(release, old.charge_group, -was_charged)
            self._change_count(release, new.charge_group, is_charged)

    def _change_count(self, release: str, number: int, difference: int) -> None:
        group = self.charge_groups[number]
        group.count += difference
        if difference > 0:
            group.release_ids.append(release)
        self._changed_groups.add(number)

    def _find_or_add_group(self, event_fields: dict[str, Any], record: Record, month: int) -> int:
        """Return the number of the charge group of an event with a release body."""
        body = event_fields["body"]
        if not isinstance(body, dict) or not isinstance(body.get("by", ""), str):
            raise LedgerDamaged("record has an invalid `body`")
        by, mechanisms = body.get("by", ""), mechanism_bytes(record.payload)
        meaning = event_fields.get("meaning")
        if meaning is None:
            check_body(body)
            meaning = self._legacy_meaning(by, mechanisms)
        key = (by, mechanisms, meaning, month)
        number = self._group_numbers.get(key)
        if number is None:
            check_body(body)
            if meaning not in PENDING_MEANINGS:
                check_meaning(meaning, body)
            number = self._group_numbers[key] = len(self.charge_groups)
            self.charge_groups.append(ChargeGroup(*key))
        return number

    def _legacy_meaning(self, by: str, mechanisms: bytes) -> str:
        """Return the meaning of a record of format 1 or 2 under the policy that was active."""
        if self.enforced is None:
            return NO_LEGACY_MEANING
        key = (by, mechanisms)
        if key not in self._legacy_meanings:
            self._legacy_meanings[key] = complete_recorded(
                self.enforced, by, mechanisms, NO_LEGACY_MEANING
            )
        return self._legacy_meanings[key]

    def _complete_pending_groups(self) -> None:
        """Let the first policy complete the releases that were recorded before it."""
        for group in self.charge_groups:
            if group.meaning in PENDING_MEANINGS and self.enforced is not None:
                group.meaning = complete_recorded(
                    self.enforced, group.by, group.mechanisms, group.meaning
                )

    def _add_proposal(self, kind: str, event_fields: dict[str, Any], record: Record) -> None:
        subject = event_fields["digest"] if kind == "policy" else event_fields["release"]
        self.propose(
            Proposal(record.sequence, kind, subject, event_fields["by"], event_fields["at"])
        )

    def _answer_proposal(self, number: int, approved: bool) -> None:
        if number not in self.proposals:
            raise LedgerDamaged(f"record answers unknown proposal {number}")
        self.proposals[number] = self.proposals[number]._replace(open=False, approved=approved)

    def _change_policy(self, policy: CompiledPolicy, more: Certificates = ()) -> None:
        self.enforced = enforce(policy, more)
        self._legacy_meanings = {}
        self._totals = SpendingTotals(self.enforced)
        self._changed_groups = set(range(len(self.charge_groups)))


@lru_cache(maxsize=1024)
def first_day_of_month(timestamp: str) -> int:
    """Return the first day of the month of a timestamp such as 2026-10-28T12:00:00+00:00."""
    try:
        return date.fromisoformat(f"{timestamp[:7]}-01").toordinal()
    except ValueError:
        raise LedgerDamaged(f"record has the invalid time `{timestamp[:40]}`") from None
