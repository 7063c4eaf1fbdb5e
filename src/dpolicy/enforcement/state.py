"""Events → what they add up to: the policy in force, every release by id, what each rule has spent.

Nothing here is stored as truth: the same state comes out of the log every time. A past release
that a later policy cannot read is charged to every rule, never to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpolicy.enforcement.check import certificates_of, charges
from dpolicy.enforcement.resolution import resolve
from dpolicy.errors import InvalidValue, LedgerDamaged, PredicateFailed
from dpolicy.language.source import Source
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    Record,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseRelabelled,
    ReleaseVoided,
    check_chain,
    from_bytes,
)
from dpolicy.privacy.loss import Loss, add, subtract, unbounded
from dpolicy.releases.body import release_of
from dpolicy.rules.compiler import CompiledPolicy, compile_policy

#: What a release is: the last two words are final, and so is `denied`.
ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED = (
    "allowed",
    "denied",
    "reserved",
    "voided",
    "committed",
)
EXPIRED, IMPORTED = "expired", "imported"

#: Everything but what was denied or voided counts as spent.
COUNTED = {ALLOWED, RESERVED, COMMITTED, EXPIRED, IMPORTED}


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: what was asked, what is charged, and how it stands."""

    sequence: int
    at: str
    by: str
    status: str
    asked: Mapping[str, Any]
    charged: Mapping[str, Any]
    answer: str | None
    expires: str | None


@dataclass(slots=True)
class State:
    """The fold of a log up to `head`; `open` holds when each reservation runs out."""

    head: Record | None = None
    policy: CompiledPolicy | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    spent: dict[int, Loss] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    _charges: dict[str, dict[int, Loss]] = field(default_factory=dict)

    @property
    def sequence(self) -> int:
        """The number of the last record."""
        return self.head.sequence if self.head else 0

    def follow(self, records: Iterable[Record]) -> None:
        """Take records in, each after checking that it belongs behind the last one."""
        for record in records:
            check_chain(self.head, record)
            self.apply(from_bytes(record.payload), record)

    def apply(self, event: Event, record: Record) -> None:
        """Take one event in."""
        match event:
            case PolicyApplied():
                self._change_policy(compiled_of(event))
            case ReleaseDecided():
                self._decided(event, record.sequence)
            case ReleaseImported():
                entry = Entry(
                    record.sequence,
                    event.at,
                    event.by,
                    IMPORTED,
                    event.body,
                    event.body,
                    None,
                    None,
                )
                self._add(event.release, entry)
            case ReleaseCommitted():
                charged = event.body or self.entry(event.release).charged
                self._replace(event.release, status=COMMITTED, charged=charged)
            case ReleaseVoided():
                self._replace(event.release, status=VOIDED)
            case ReleaseExpired():
                self._replace(event.release, status=EXPIRED)
            case ReleaseRelabelled():
                self._replace(event.release, charged=event.body)
        self.head = record

    def entry(self, release: str) -> Entry:
        """A release that is there."""
        if release not in self.entries:
            raise LedgerDamaged(f"the release `{release}` is spoken of before it was asked for")
        return self.entries[release]

    def _decided(self, event: ReleaseDecided, sequence: int) -> None:
        allowed = RESERVED if event.reserved else ALLOWED
        entry = Entry(
            sequence,
            event.at,
            event.by,
            allowed if event.allowed else DENIED,
            event.body,
            event.body,
            event.answer,
            event.expires,
        )
        self._add(event.release, entry)

    def _add(self, release: str, entry: Entry) -> None:
        if release in self.entries:
            raise LedgerDamaged(f"the release `{release}` is in the ledger twice")
        self.entries[release] = entry
        self._charge(release)

    def _replace(self, release: str, **changes: Any) -> None:
        self.entries[release] = replace(self.entry(release), **changes)
        self._discharge(release)
        self._charge(release)

    def _discharge(self, release: str) -> None:
        for number, loss in self._charges.pop(release, {}).items():
            self.spent[number] = subtract(self.spent[number], loss)

    def _charge(self, release: str) -> None:
        entry = self.entries[release]
        self.open.pop(release, None)
        if entry.status == RESERVED and entry.expires is not None:
            self.open[release] = entry.expires
        if self.policy is None or entry.status not in COUNTED:
            return
        costs = charges_of(self.policy, entry.charged)
        self._charges[release] = costs
        for number, loss in costs.items():
            known = self.spent.get(number)
            self.spent[number] = loss if known is None else add(known, loss)

    def _change_policy(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.spent, self._charges = {}, {}
        for release in self.entries:
            self._charge(release)

    def under(self, policy: CompiledPolicy) -> State:
        """The same history under another policy."""
        other = State(self.head, None, dict(self.entries))
        other._change_policy(policy)
        return other

    def spenders(self, number: int) -> list[tuple[str, Loss]]:
        """The releases that a rule was charged for."""
        return [(r, costs[number]) for r, costs in self._charges.items() if number in costs]


def compiled_of(event: PolicyApplied) -> CompiledPolicy:
    """The policy of an event, compiled from its own texts."""
    return compile_policy([Source(name, text) for name, text in event.sources])


def charges_of(policy: CompiledPolicy, body: Mapping[str, Any]) -> dict[int, Loss]:
    """What a past release costs each kept rule; all of them everything, if it cannot be read."""
    certificates = certificates_of(policy)
    try:
        mechanisms, problems = resolve(release_of(body), policy, certificates)
        if not problems:
            return charges(policy.cumulative, mechanisms)
    except (InvalidValue, PredicateFailed):
        pass
    everything = unbounded(certificates)
    return dict.fromkeys(policy.cumulative.pruned.kept.nonzero()[0].tolist(), everything)
