"""Events → what they add up to: the policy in force, every release by id, what each rule has spent.

Nothing here is stored as truth: the same state comes out of the log every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from dpolicy.enforcement.balances import Balances, Charge
from dpolicy.enforcement.contents import Account, Content
from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.language.source import Source
from dpolicy.ledger.events import (
    PolicyApplied,
    PolicyProposed,
    Record,
    check_body,
    check_chain,
    from_bytes,
    glance,
    mechanisms_of,
)
from dpolicy.privacy.rows import Rows
from dpolicy.releases.regions import Point
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

#: All of them, for snapshots.
STATUSES = (ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED, EXPIRED, IMPORTED)

#: Everything but what was denied or voided counts as spent.
COUNTED = frozenset({ALLOWED, RESERVED, COMMITTED, EXPIRED, IMPORTED})


class Entry(NamedTuple):
    """One release: how it stands, the records of what was asked and charged, and its content."""

    status: str
    asked: int
    charged: int
    content: int


class Proposal(NamedTuple):
    """Something that waits for a second person, or was answered by one.

    `about` is the id of a release, or the digest of a policy.
    """

    number: int
    kind: str
    about: str
    by: str
    at: str
    open: bool = True
    approved: bool = False


@dataclass(slots=True)
class State:
    """The fold of a log up to `head`.

    `policy_at` is the record of the policy in force; `open` says when each reservation runs out;
    `month` is the first day of the month that the ledger has reached, which only moves on; `now`
    that of whoever looks at it, and no part of what is folded.
    """

    head: Record | None = None
    policy: CompiledPolicy | None = None
    policy_at: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    contents: list[Content] = field(default_factory=list)
    month: int = 0
    now: int = 0
    proposals: dict[int, Proposal] = field(default_factory=dict)
    _newest: dict[tuple[str, str], int] = field(default_factory=dict)
    _numbers: dict[tuple[str, bytes, int], int] = field(default_factory=dict)
    _account: Account | None = None
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
    def account(self) -> Account:
        """What the contents add up to under the policy in force."""
        if self._account is None:
            raise InvariantBroken("there is no policy yet")
        return self._account

    @property
    def balances(self) -> Balances:
        """What each rule has spent."""
        found = self.account.balances(self.contents, self._changed, self.today)
        self._changed = set()
        return found

    def follow(self, records: Iterable[Record]) -> None:
        """Take records in, each after checking that it belongs behind the last one."""
        for record in records:
            check_chain(self.head, record)
            said = glance(record.payload)
            self.month = max(self.month, month_of(said["at"]))
            self._take(said, record)
            self.head = record

    def entry(self, release: str) -> Entry:
        """A release that is there."""
        if release not in self.entries:
            raise LedgerDamaged(f"the release `{release}` is spoken of before it was asked for")
        return self.entries[release]

    def proposal_of(self, kind: str, about: str) -> Proposal | None:
        """The newest proposal about a release or a policy."""
        return self.proposals.get(self._newest.get((kind, about), 0))

    def propose(self, proposal: Proposal) -> None:
        """Take in a proposal."""
        self.proposals[proposal.number] = proposal
        self._newest[proposal.kind, proposal.about] = proposal.number

    def charges_of(self, entry: Entry) -> tuple[Charge, ...]:
        """What a release costs each kept rule."""
        return self.account.charges(entry.content, self.contents[entry.content])

    def spenders(self, rule: int, at: Point | None) -> Iterator[tuple[Content, Rows]]:
        """The contents that a rule is charged for, here or anywhere, with the cost of a release."""
        for number, row in self.account.spenders(rule, self.contents, at):
            yield self.contents[number], row

    def most_spenders(self, rule: int) -> int:
        """No fewer contents than a rule is charged for."""
        return self.account.most_spenders(rule, self.contents)

    def counted(self, content: Content) -> Iterator[str]:
        """The releases of a content that count."""
        for release in content.releases:
            entry = self.entries[release]
            if entry.status in COUNTED and self.contents[entry.content] is content:
                yield release

    def under(self, policy: CompiledPolicy) -> State:
        """The same history under another policy, to look at while this one does not change."""
        other = State(self.head, policy, 0, self.entries, self.open, self.contents, self.today)
        other._change_policy(policy)
        return other

    def restore(self, account: Account, policy_at: int) -> None:
        """Take over an account in which all contents are charged already."""
        self.policy, self.policy_at, self._account = account.policy, policy_at, account
        self._numbers = {(c.by, c.mechanisms, c.month): n for n, c in enumerate(self.contents)}
        for release, entry in self.entries.items():
            if entry.status in COUNTED:
                self.contents[entry.content].releases.append(release)

    def _take(self, said: dict[str, Any], record: Record) -> None:
        match said["event"]:
            case "release-decided":
                status = RESERVED if said["reserved"] else ALLOWED
                status = status if said["allowed"] else DENIED
                self._add(said, record, status)
                if status == RESERVED:
                    self.open[said["release"]] = said["expires"]
            case "release-imported":
                self._add(said, record, IMPORTED)
            case "policy-applied":
                event = from_bytes(record.payload)
                if isinstance(event, PolicyApplied):
                    self.policy_at = record.sequence
                    self._change_policy(compiled_of(event))
            case "release-committed" if said["body"] is not None:
                self._replace(said["release"], COMMITTED, said["body"], record)
            case "release-relabelled":
                self._replace(said["release"], None, said["body"], record)
            case "release-proposed" | "void-proposed" | "policy-proposed" as proposed:
                kind, about = proposed.removesuffix("-proposed"), said.get("release", "")
                about = said.get("digest", about)
                self.propose(Proposal(record.sequence, kind, about, said["by"], said["at"]))
            case "proposal-answered":
                self._answer(said["proposal"], said["approved"])
            case ended:
                ends = {"release-committed": COMMITTED, "release-voided": VOIDED}
                self._replace(said["release"], ends.get(ended, EXPIRED))

    def _answer(self, number: int, approved: bool) -> None:
        if number not in self.proposals:
            raise LedgerDamaged(f"proposal {number} is answered before it was made")
        self.proposals[number] = self.proposals[number]._replace(open=False, approved=approved)

    def _add(self, said: dict[str, Any], record: Record, status: str) -> None:
        release = said["release"]
        if release in self.entries:
            raise LedgerDamaged(f"the release `{release}` is in the ledger twice")
        content = self._content(said["body"], record, self.month)
        self.entries[release] = Entry(status, record.sequence, record.sequence, content)
        if status in COUNTED:
            self._count(release, content, 1)

    def _replace(
        self, release: str, status: str | None, body: Any = None, record: Record | None = None
    ) -> None:
        """A release that stands otherwise now, or is charged for another content since then."""
        old = self.entry(release)
        new = old._replace(status=status or old.status)
        if record is not None:
            content = self._content(body, record, self.contents[old.content].month)
            new = new._replace(charged=record.sequence, content=content)
        self.open.pop(release, None) if status else None
        self.entries[release] = new
        before, after = old.status in COUNTED, new.status in COUNTED
        if (before, old.content) != (after, new.content):
            self._count(release, old.content, -before)
            self._count(release, new.content, after)

    def _count(self, release: str, content: int, more: int) -> None:
        held = self.contents[content]
        held.count += more
        if more > 0:
            held.releases.append(release)
        self._changed.add(content)

    def _content(self, body: Any, record: Record, month: int) -> int:
        """The number of the content of a record, which is new if nobody asked for it before."""
        if not isinstance(body, dict):
            raise LedgerDamaged("a record has a `body` of the wrong shape")
        key = (body.get("by", ""), mechanisms_of(record.payload), month)
        number = self._numbers.get(key) if isinstance(key[0], str) else None
        if number is None:
            check_body(body)
            number = self._numbers[key] = len(self.contents)
            self.contents.append(Content(*key))
        return number

    def _change_policy(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self._account = Account(policy)
        self._changed = set(range(len(self.contents)))


@lru_cache(maxsize=1024)
def month_of(at: str) -> int:
    """The first day of the month of a time such as 2026-10-28T12:00:00+00:00."""
    try:
        return date.fromisoformat(f"{at[:7]}-01").toordinal()
    except ValueError:
        raise LedgerDamaged(f"a record was written at `{at[:40]}`, which is no time") from None


def compiled_of(event: PolicyApplied | PolicyProposed) -> CompiledPolicy:
    """The policy of an event, compiled from its own texts."""
    return compile_policy([Source(name, text) for name, text in event.sources])
