"""Events → what they add up to: the policy in force, every release by id, what each rule has spent.

Nothing here is stored as truth: the same state comes out of the log every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from dpolicy.balances.balances import Balances, Charge
from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.events import (
    PolicyApplied,
    PolicyProposed,
    check_body,
    decode_event_fast,
    from_bytes,
    mechanism_bytes,
)
from dpolicy.pdp.charge_groups import ChargeGroup, SpendingTotals
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: What a release is: the last two words are final, and so is `denied`.
ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED = (
    "allowed",
    "denied",
    "reserved",
    "voided",
    "committed",
)
EXPIRED, IMPORTED = "expired", "imported"

#: All of them, for snapshots.
STATUSES = (ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED, EXPIRED, IMPORTED)

#: Everything but what was denied or voided counts as spent.
SPENDING_STATUSES = frozenset({ALLOWED, RESERVED, COMMITTED, EXPIRED, IMPORTED})


class ReleaseEntry(NamedTuple):
    """One release: how it stands, the records of what was asked and charged, and its content."""

    status: str
    request_record: int
    charge_record: int
    charge_group: int


class Proposal(NamedTuple):
    """Something that waits for a second person, or was answered by one.

    `about` is the id of a release, or the digest of a policy.
    """

    number: int
    kind: str
    subject: str
    by: str
    at: str
    open: bool = True
    approved: bool = False


@dataclass(slots=True)
class LedgerState:
    """The fold of a log up to `head`.

    `policy_at` is the record of the policy in force; `open` says when each reservation runs out;
    `month` is the first day of the month that the ledger has reached, which only moves on; `now`
    that of whoever looks at it, and no part of what is folded.
    """

    head: Record | None = None
    policy: CompiledPolicy | None = None
    policy_record: int = 0
    entries: dict[str, ReleaseEntry] = field(default_factory=dict)
    open_reservations: dict[str, str] = field(default_factory=dict)
    charge_groups: list[ChargeGroup] = field(default_factory=list)
    month: int = 0
    now: int = 0
    proposals: dict[int, Proposal] = field(default_factory=dict)
    _newest: dict[tuple[str, str], int] = field(default_factory=dict)
    _numbers: dict[tuple[str, bytes, int], int] = field(default_factory=dict)
    _account: SpendingTotals | None = None
    _changed: set[int] = field(default_factory=set)

    @property
    def sequence(self) -> int:
        """The number of the last record."""
        return self.head.sequence if self.head else 0

    @property
    def today(self) -> int:
        """The month in which balances are looked at."""
        return max(self.month, self.now)

    @property
    def account(self) -> SpendingTotals:
        """What the contents add up to under the policy in force."""
        if self._account is None:
            raise InvariantBroken("there is no policy yet")
        return self._account

    @property
    def balances(self) -> Balances:
        """What each rule has spent."""
        found = self.account.balances(self.charge_groups, self._changed, self.today)
        self._changed = set()
        return found

    def fold(self, records: Iterable[Record]) -> None:
        """Take records in, each after checking that it belongs behind the last one."""
        for record in records:
            check_chain(self.head, record)
            said = decode_event_fast(record.payload)
            self.month = max(self.month, first_day_of_month(said["at"]))
            self._take(said, record)
            self.head = record

    def entry(self, release: str) -> ReleaseEntry:
        """A release that is there."""
        if release not in self.entries:
            raise LedgerDamaged(f"the release `{release}` is spoken of before it was asked for")
        return self.entries[release]

    def newest_proposal(self, kind: str, about: str) -> Proposal | None:
        """The newest proposal about a release or a policy."""
        return self.proposals.get(self._newest.get((kind, about), 0))

    def propose(self, proposal: Proposal) -> None:
        """Take in a proposal."""
        self.proposals[proposal.number] = proposal
        self._newest[proposal.kind, proposal.subject] = proposal.number

    def charges_for_release(self, entry: ReleaseEntry) -> tuple[Charge, ...]:
        """What a release costs each kept rule."""
        return self.account.charges_for_group(
            entry.charge_group, self.charge_groups[entry.charge_group]
        )

    def groups_charged_to_rule(
        self, rule: int, at: Point | None
    ) -> Iterator[tuple[ChargeGroup, LossArray]]:
        """The contents that a rule is charged for, here or anywhere, with the cost of a release."""
        for number, row in self.account.groups_charged_to(rule, self.charge_groups, at):
            yield self.charge_groups[number], row

    def max_groups_charged_to_rule(self, rule: int) -> int:
        """No fewer contents than a rule is charged for."""
        return self.account.max_groups_charged_to(rule, self.charge_groups)

    def spending_releases(self, content: ChargeGroup) -> Iterator[str]:
        """The releases of a content that count."""
        for release in content.release_ids:
            entry = self.entries[release]
            if (
                entry.status in SPENDING_STATUSES
                and self.charge_groups[entry.charge_group] is content
            ):
                yield release

    def with_policy(self, policy: CompiledPolicy) -> LedgerState:
        """The same history under another policy, to look at while this one does not change."""
        other = LedgerState(
            self.head,
            policy,
            0,
            self.entries,
            self.open_reservations,
            self.charge_groups,
            self.today,
        )
        other._change_policy(policy)
        return other

    def restore(self, account: SpendingTotals, policy_at: int) -> None:
        """Take over an account in which all contents are charged already."""
        self.policy, self.policy_record, self._account = account.policy, policy_at, account
        self._numbers = {(c.by, c.mechanisms, c.month): n for n, c in enumerate(self.charge_groups)}
        for release, entry in self.entries.items():
            if entry.status in SPENDING_STATUSES:
                self.charge_groups[entry.charge_group].release_ids.append(release)

    def _take(self, event_fields: dict[str, Any], record: Record) -> None:
        match event_fields["event"]:
            case "release-decided":
                status = RESERVED if event_fields["reserved"] else ALLOWED
                status = status if event_fields["allowed"] else DENIED
                self._add(event_fields, record, status)
                if status == RESERVED:
                    self.open_reservations[event_fields["release"]] = event_fields["expires"]
            case "release-imported":
                self._add(event_fields, record, IMPORTED)
            case "policy-applied":
                event = from_bytes(record.payload)
                if isinstance(event, PolicyApplied):
                    self.policy_record = record.sequence
                    self._change_policy(compile_recorded_policy(event))
            case "release-committed" if event_fields["body"] is not None:
                self._replace(event_fields["release"], COMMITTED, event_fields["body"], record)
            case "release-relabelled":
                self._replace(event_fields["release"], None, event_fields["body"], record)
            case "release-proposed" | "void-proposed" | "policy-proposed" as proposed:
                kind, about = proposed.removesuffix("-proposed"), event_fields.get("release", "")
                about = event_fields.get("digest", about)
                self.propose(
                    Proposal(record.sequence, kind, about, event_fields["by"], event_fields["at"])
                )
            case "proposal-answered":
                self._answer(event_fields["proposal"], event_fields["approved"])
            case ended:
                ends = {"release-committed": COMMITTED, "release-voided": VOIDED}
                self._replace(event_fields["release"], ends.get(ended, EXPIRED))

    def _answer(self, number: int, approved: bool) -> None:
        if number not in self.proposals:
            raise LedgerDamaged(f"proposal {number} is answered before it was made")
        self.proposals[number] = self.proposals[number]._replace(open=False, approved=approved)

    def _add(self, event_fields: dict[str, Any], record: Record, status: str) -> None:
        release = event_fields["release"]
        if release in self.entries:
            raise LedgerDamaged(f"the release `{release}` is in the ledger twice")
        content = self._content(event_fields["body"], record, self.month)
        self.entries[release] = ReleaseEntry(status, record.sequence, record.sequence, content)
        if status in SPENDING_STATUSES:
            self._count(release, content, 1)

    def _replace(
        self, release: str, status: str | None, body: Any = None, record: Record | None = None
    ) -> None:
        """A release that stands otherwise now, or is charged for another content since then."""
        old = self.entry(release)
        new = old._replace(status=status or old.status)
        if record is not None:
            content = self._content(body, record, self.charge_groups[old.charge_group].month)
            new = new._replace(charge_record=record.sequence, charge_group=content)
        self.open_reservations.pop(release, None) if status else None
        self.entries[release] = new
        before, after = old.status in SPENDING_STATUSES, new.status in SPENDING_STATUSES
        if (before, old.charge_group) != (after, new.charge_group):
            self._count(release, old.charge_group, -before)
            self._count(release, new.charge_group, after)

    def _count(self, release: str, content: int, more: int) -> None:
        held = self.charge_groups[content]
        held.count += more
        if more > 0:
            held.release_ids.append(release)
        self._changed.add(content)

    def _content(self, body: Any, record: Record, month: int) -> int:
        """The number of the content of a record, which is new if nobody asked for it before."""
        if not isinstance(body, dict):
            raise LedgerDamaged("a record has a `body` of the wrong shape")
        key = (body.get("by", ""), mechanism_bytes(record.payload), month)
        number = self._numbers.get(key) if isinstance(key[0], str) else None
        if number is None:
            check_body(body)
            number = self._numbers[key] = len(self.charge_groups)
            self.charge_groups.append(ChargeGroup(*key))
        return number

    def _change_policy(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self._account = SpendingTotals(policy)
        self._changed = set(range(len(self.charge_groups)))


@lru_cache(maxsize=1024)
def first_day_of_month(at: str) -> int:
    """The first day of the month of a time such as 2026-10-28T12:00:00+00:00."""
    try:
        return date.fromisoformat(f"{at[:7]}-01").toordinal()
    except ValueError:
        raise LedgerDamaged(f"a record was written at `{at[:40]}`, which is no time") from None


def compile_recorded_policy(event: PolicyApplied | PolicyProposed) -> CompiledPolicy:
    """The policy of an event, compiled from its own texts."""
    return compile_policy([Source(name, text) for name, text in event.sources])
