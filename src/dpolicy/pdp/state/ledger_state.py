"""Ledger state: the active policy, releases and charge groups, folded from the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.balances.memo import Memo
from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.decided_records import decode_decided_record
from dpolicy.ledger.events import decode_event_fast
from dpolicy.ledger.timestamps import first_day_of_month
from dpolicy.pdp.policy_changes.recorded_policy import enforce_recorded_policy
from dpolicy.pdp.state.charge_groups import (
    ChargeGroup,
    Pause,
    Resolution,
    SpendingTotals,
    never_pause,
)
from dpolicy.pdp.state.content_index import ContentIndex
from dpolicy.pdp.state.offered_totals import OfferedTotals
from dpolicy.pdp.state.open_reservations import OpenReservations
from dpolicy.pdp.state.planned_release import PlannedRelease
from dpolicy.pdp.state.proposal import ProposalTable, proposal_from_event
from dpolicy.pdp.state.recent_changes import RecentChanges
from dpolicy.pdp.state.release_archive import (
    ALLOWED,
    COMMITTED,
    DENIED,
    EXPIRED,
    IMPORTED,
    RESERVED,
    SPENDING_STATUSES,
    VOIDED,
    ReleaseArchive,
    ReleaseEntry,
)
from dpolicy.pdp.state.release_table import ReleaseTable
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy

#: Number of policies that the states of a journal keep.
MAX_KEPT_POLICIES = 4


@dataclass(slots=True)
class LedgerState:
    """Fold of the records up to `head`. Mutable.

    `enforced` is the active policy and `policy_record` the record that activated it.
    `open_reservations` has the expiry time of each. `month` is the first day of the latest month in
    the ledger; it never decreases. `now` is the first day of the reader's current month and is not
    part of the fold. `charged_sequence` is the number of the last record that changed a charge.
    Folding does not charge balances. Call `update_balances` before reading `balances`.
    """

    head: Record | None = None
    enforced: EnforcedPolicy | None = None
    policy_record: int = 0
    entries: ReleaseTable = field(default_factory=ReleaseTable)
    open_reservations: OpenReservations = field(default_factory=OpenReservations)
    charge_groups: list[ChargeGroup] = field(default_factory=list)
    month: int = 0
    now: int = 0
    proposals: ProposalTable = field(default_factory=ProposalTable)
    charged_sequence: int = 0
    _contents: ContentIndex = field(default_factory=ContentIndex)
    _totals: SpendingTotals | None = None
    _changed_groups: set[int] = field(default_factory=set)
    _offered: OfferedTotals | None = None
    _changes: RecentChanges = field(default_factory=RecentChanges)
    #: Policies by their record. Copies share them, so that each policy is compiled once.
    _policies: Memo[Record, EnforcedPolicy] = field(
        default_factory=lambda: Memo(MAX_KEPT_POLICIES), compare=False
    )

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

    def update_balances(self, pause: Pause = never_pause) -> None:
        """Charge everything that changed since the last update; without a policy, do nothing."""
        if self._totals is not None:
            self._totals.update(self.charge_groups, self._changed_groups, self.today, pause)
            self._changed_groups = set()

    def fold(self, records: Iterable[Record], resolution: Resolution | None = None) -> None:
        """Apply records to the state, checking the hash chain at each record.

        `resolution` has the resolved mechanisms of a single decided release, if they are known.
        """
        for record in records:
            check_chain(self.head, record)
            if not self._fold_known_content(record, resolution):
                event_fields = decode_event_fast(record.payload)
                self.month = max(self.month, first_day_of_month(event_fields["at"]))
                self._apply(event_fields, record, resolution)
            self.head = record
        self.archive_if_many()

    def archive_if_many(self) -> None:
        """Archive the releases if many of them are not in the archive."""
        if self.entries.has_many_recent:
            self.archive_releases()

    def archive_releases(self) -> ReleaseArchive:
        """Move the entries of all releases to an archive, which needs less memory; return it."""
        archive = self.entries.archive()
        for group in self.charge_groups:
            group.release_ids.clear()
        return archive

    def fold_by_plan(self, record: Record, planned: PlannedRelease) -> None:
        """Apply the record of a decided release that this process has just built.

        The result is that of `fold([record])`, with balances that are updated as before.
        """
        self.month = max(self.month, first_day_of_month(planned.at))
        key = (planned.by, planned.mechanisms, planned.meaning, self.month)
        number = self._contents.find_or_add_key(self.charge_groups, key)
        release, sequence = planned.release, record.sequence
        self.entries[release] = ReleaseEntry(planned.status, sequence, sequence, number)
        if planned.expires is not None:
            self.open_reservations[release] = planned.expires
        if planned.allowed:
            group = self._count_new_release(release, number, sequence)
            if not self.totals.charge_by_plan(number, group, planned.resolved, planned.charge):
                self._changed_groups.add(number)
        self.head = record

    def entry(self, release: str) -> ReleaseEntry:
        """Return the entry of a release. Raise `LedgerDamaged` if there is none."""
        if release not in self.entries:
            raise LedgerDamaged(f"record refers to unknown release `{release}`")
        return self.entries[release]

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

    def spending_releases(self, group: ChargeGroup) -> Iterator[str]:
        """Yield the ids of the releases of a group that are charged."""
        yield from self.entries.charged_in_group(group.number, group.release_ids)

    def with_policy(
        self, policy: CompiledPolicy, more: Certificates = (), pause: Pause = never_pause
    ) -> LedgerState:
        """Return the state under another policy, with updated balances.

        Balances have the certificates of the policy and `more`. See `with_totals`.
        """
        return self.with_totals(SpendingTotals(enforce(policy, more)), pause)

    def with_totals(
        self, totals: SpendingTotals, pause: Pause = never_pause, sequence: int | None = None
    ) -> LedgerState:
        """Return the state under the policy of `totals`, after charging to them what they lack.

        `sequence` is the last record that they charge, if it is known. The result shares entries
        and charge groups with this state: read it only while this state stays; do not fold into it.
        """
        other = LedgerState(
            head=self.head,
            enforced=totals.enforced,
            entries=self.entries,
            open_reservations=self.open_reservations,
            charge_groups=self.charge_groups,
            month=self.today,
            _totals=totals,
            _changed_groups=self._find_outdated_groups(totals, sequence),
        )
        other.update_balances(pause)
        return other

    def copy(self) -> LedgerState:
        """Return an independent copy."""
        return LedgerState(
            head=self.head,
            enforced=self.enforced,
            policy_record=self.policy_record,
            entries=self.entries.copy(),
            open_reservations=OpenReservations(self.open_reservations),
            charge_groups=[group.copy() for group in self.charge_groups],
            month=self.month,
            now=self.now,
            proposals=self.proposals.copy(),
            charged_sequence=self.charged_sequence,
            _contents=self._contents.copy(),
            _totals=None if self._totals is None else self._totals.copy(),
            _changed_groups=set(self._changed_groups),
            _changes=self._changes.copy(),
            _policies=self._policies,
        )

    @property
    def has_pending_groups(self) -> bool:
        """Whether a policy must complete the meaning of a charge group."""
        return self._contents.pending_count > 0

    def _find_outdated_groups(self, totals: SpendingTotals, sequence: int | None) -> set[int]:
        """Return the groups that totals do not charge correctly, which charge up to `sequence`."""
        changed = None if sequence is None else self._changes.find_after(sequence)
        return totals.outdated_groups(self.charge_groups) if changed is None else changed

    def offer_totals(self, offered: OfferedTotals | None) -> None:
        """Let the fold of the next applied policy take over totals if they fit."""
        self._offered = offered

    def restore(self, totals: SpendingTotals, policy_record: int) -> None:
        """Take over totals in which all charge groups are already charged."""
        self.enforced, self.policy_record, self._totals = totals.enforced, policy_record, totals
        self._contents.rebuild(self.charge_groups)
        self._changes = RecentChanges(self.sequence)
        self.charged_sequence = self.sequence

    def _fold_known_content(self, record: Record, resolution: Resolution | None) -> bool:
        """Fold a decided release whose content an earlier record has, without decoding all of it.

        Return False, and change nothing, for any other record.
        """
        if (quick := decode_decided_record(record.payload)) is None:
            return False
        decided, mechanisms = quick
        release, month = decided.release, first_day_of_month(decided.at)
        month = self.month if self.month > month else month
        number = self._contents.numbers.get((decided.body.by, mechanisms, decided.meaning, month))
        if number is None:
            return False
        status = (RESERVED if decided.reserved else ALLOWED) if decided.allowed else DENIED
        entry = ReleaseEntry(status, record.sequence, record.sequence, number)
        if not self.entries.add_new(release, entry):
            return False
        self.month = month
        if status is DENIED:
            return True
        self._count_new_release(release, number, record.sequence)
        self._changed_groups.add(number)
        if decided.expires is not None and status is RESERVED:
            self.open_reservations[release] = decided.expires
        if resolution is not None:
            self.totals.add_resolution(number, resolution)
        return True

    def _apply(
        self, event_fields: dict[str, Any], record: Record, resolution: Resolution | None
    ) -> None:
        match event_fields["event"]:
            case "release-decided":
                self._add_decided_release(event_fields, record, resolution)
            case "release-imported":
                self._add_release(event_fields, record, IMPORTED)
            case "policy-applied":
                self.policy_record = record.sequence
                self._change_policy(record)
            case "release-committed":
                if event_fields["body"] is not None:
                    self._replace_charge(event_fields, record)
                self._set_status(event_fields["release"], COMMITTED)
            case "release-relabelled":
                self._replace_charge(event_fields, record)
            case "release-voided":
                self._set_status(event_fields["release"], VOIDED)
            case str(name) if name.endswith("-proposed"):
                kind = name.removesuffix("-proposed")
                self.proposals.add(proposal_from_event(kind, event_fields, record.sequence))
            case "proposal-answered":
                self.proposals.answer(event_fields["proposal"], event_fields["approved"])
            case _:
                self._set_status(event_fields["release"], EXPIRED)

    def _add_decided_release(
        self, event_fields: dict[str, Any], record: Record, resolution: Resolution | None
    ) -> None:
        allowed, reserved = event_fields["allowed"], event_fields["reserved"]
        status = (RESERVED if reserved else ALLOWED) if allowed else DENIED
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
        group = self._contents.find_or_add(
            self.charge_groups, event_fields, record, self.month, self.enforced
        )
        self.entries[release] = ReleaseEntry(status, record.sequence, record.sequence, group)
        if status in SPENDING_STATUSES:
            self._change_count(release, group, 1, is_new=True)
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
        group = self._contents.find_or_add(
            self.charge_groups, event_fields, record, month, self.enforced
        )
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

    def _change_count(
        self, release: str, number: int, difference: int, *, is_new: bool = False
    ) -> None:
        group = self.charge_groups[number]
        group.count += difference
        if difference > 0 and (is_new or release not in group.release_ids):
            group.release_ids.append(release)
        self._changed_groups.add(number)
        self.charged_sequence = self.sequence + 1
        self._changes.append(self.charged_sequence, number)

    def _count_new_release(self, release: str, number: int, sequence: int) -> ChargeGroup:
        group = self.charge_groups[number]
        group.count += 1
        group.release_ids.append(release)
        self.charged_sequence = sequence
        self._changes.append(sequence, number)
        return group

    def _change_policy(self, record: Record) -> None:
        """Activate the policy of a record; without totals that fit, charge all groups again."""
        offered, self._offered = self._offered, None
        if offered and (self.has_pending_groups or not offered.fit(record, self.charge_groups)):
            offered = None
        give = offered.give_policy if offered else enforce_recorded_policy
        self.enforced = self._policies.get_or_compute(record, give)
        self._contents.change_policy(self.charge_groups, self.enforced)
        if offered and offered.totals.enforced is self.enforced:
            self._totals = offered.totals
            self._changed_groups = self._find_outdated_groups(offered.totals, offered.sequence)
        else:
            self._totals = SpendingTotals(self.enforced)
            self._changed_groups = set(range(len(self.charge_groups)))
