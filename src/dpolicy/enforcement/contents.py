"""What releases ask for, each distinct content once: how often it counts, and what that costs.

Pipelines ask the same again and again. A loss depends on the mechanisms and on who asks, not on the
id, so balances are the sum over distinct contents of their count times their cost: the same number
as release by release, and reading a long ledger again takes the time of its distinct contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from dpolicy.enforcement.balances import Balances, Charge
from dpolicy.enforcement.check import Prepared, certificates_of, charges, prepared
from dpolicy.enforcement.resolution import Resolved, resolve
from dpolicy.errors import InvalidValue, PredicateFailed
from dpolicy.ledger.canonical import decode, encode
from dpolicy.privacy.loss import unbounded
from dpolicy.privacy.rows import Rows, added, row_of
from dpolicy.releases.body import release_of
from dpolicy.releases.regions import Point, contains
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.index import Match

#: So many decided releases are remembered until they are recorded.
EXPECTED = 256


@dataclass(slots=True)
class Content:
    """The mechanisms of releases, as canonical bytes, who asks, and in which month.

    `month` is the ordinal of its first day; `releases` are in order.
    """

    by: str
    mechanisms: bytes
    month: int
    releases: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """A content under a policy: its mechanisms and the rules they match, or None if unreadable."""

    mechanisms: tuple[Resolved, ...]
    matches: tuple[Match, ...]


class Account:
    """What contents add up to under one policy.

    A past release that the policy cannot read is charged to every rule, never to none.
    """

    def __init__(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.of, _ = prepared(policy)
        self._balances = self.of.nothing()
        self._charged: dict[int, int] = {}
        self._cutoff = 0
        self._changing = False
        self._spendings: dict[int, Spending | None] = {}
        self._by_base: dict[int, list[int]] = {}
        self._indexed = 0
        self._expected: dict[tuple[str, bytes], tuple[Resolved, ...]] = {}

    def balances(self, contents: list[Content], changed: set[int], month: int) -> Balances:
        """The balances in a month, after bringing the changed contents up to date.

        They are added up anew where a sum no longer knows its terms, where the last change was
        interrupted, and where somebody looked at a later month before.
        """
        cutoff = self.of.layout.cutoff(month)
        if not changed and cutoff == self._cutoff and not self._changing:
            return self._balances
        interrupted, self._changing = self._changing, True
        fewer = [n for n in changed if contents[n].count < self._charged.get(n, 0)]
        anew = interrupted or cutoff < self._cutoff
        if anew or any(not self._take_away(n, contents[n]) for n in fewer):
            self._balances, self._charged = self.of.nothing(), {}
            changed = set(range(len(contents)))
        for number in sorted(changed):
            more = contents[number].count - self._charged.get(number, 0)
            for charge in self.charges(number, contents[number]) if more > 0 else ():
                self._balances.add(charge, more)
            self._charged[number] = contents[number].count
        older = any(self.of.layout.cutoff(contents[n].month) < cutoff for n in changed)
        if cutoff != self._cutoff or older:
            self._balances.collapse(cutoff)
        self._cutoff, self._changing = cutoff, False
        return self._balances

    def expect(self, release: Release, mechanisms: tuple[Resolved, ...]) -> None:
        """Remember how a release that may soon be recorded was resolved, so as to do it once."""
        if len(self._expected) >= EXPECTED:
            self._expected.clear()
        self._expected[release.by, encode(release.body["mechanisms"])] = mechanisms

    @property
    def cutoff(self) -> int:
        """The day before which time steps are kept together in the balances."""
        return self._cutoff

    def restore(self, balances: Balances, contents: list[Content], cutoff: int) -> None:
        """Take over balances in which all contents are charged already."""
        self._balances, self._cutoff = balances, cutoff
        self._charged = {number: content.count for number, content in enumerate(contents)}

    def charges(self, number: int, content: Content) -> tuple[Charge, ...]:
        """What one release of a content costs each kept rule."""
        spending = self._spending(number, content)
        if spending is None:
            kept = self.of.section.pruned.kept.nonzero()[0]
            everything = row_of(unbounded(self.of.certificates))
            return (Charge(kept, np.broadcast_to(everything, (len(kept), len(everything)))),)
        return charges(self.of, spending.mechanisms, spending.matches, content.month)

    def spenders(
        self, rule: int, contents: list[Content], at: Point | None
    ) -> Iterator[tuple[int, Rows]]:
        """The contents that a rule is charged for, here or anywhere, with the cost of a release."""
        self._index(contents)
        section = self.of.section
        base, unit = rule // section.rules.width, int(self.of.units_of(np.array([rule]))[0])
        for number in sorted(self._by_base.get(base, ())):
            spending = self._spendings[number]
            if not contents[number].count:
                continue
            if spending is None:
                yield number, row_of(unbounded(self.of.certificates))
                continue
            pairs = zip(spending.mechanisms, spending.matches, strict=True)
            rows = [
                m.costs[unit]
                for m, match in pairs
                if section.index.lies_in(match, rule)
                and (not at or contains(self.of.layout.blocks(m.region, rule, self._cutoff), at))
            ]
            if rows:
                yield number, reduce(added, rows)

    def most_spenders(self, rule: int, contents: list[Content]) -> int:
        """No fewer contents than a rule is charged for: how long it takes to go through them."""
        self._index(contents)
        return len(self._by_base.get(rule // self.of.section.rules.width, ()))

    def _index(self, contents: list[Content]) -> None:
        for number in range(self._indexed, len(contents)):
            if contents[number].count:  # what never counted is not worth reading
                self._spending(number, contents[number])
        self._indexed = len(contents)

    def _take_away(self, number: int, content: Content) -> bool:
        fewer = self._charged[number] - content.count
        if not all(self._balances.take_away(c, fewer) for c in self.charges(number, content)):
            return False
        self._charged[number] = content.count
        return True

    def _spending(self, number: int, content: Content) -> Spending | None:
        if number not in self._spendings:
            known = self._expected.pop((content.by, content.mechanisms), None)
            spending = spending_of(self.policy, self.of, content, known)
            self._spendings[number] = spending
            everywhere = range(len(self.of.section.rules.bases))
            bases = {b for m in spending.matches for b in m.bases} if spending else everywhere
            for base in bases:
                self._by_base.setdefault(base, []).append(number)
        return self._spendings[number]


def spending_of(
    policy: CompiledPolicy,
    of: Prepared,
    content: Content,
    known: tuple[Resolved, ...] | None = None,
) -> Spending | None:
    """A content as a policy reads it; None if it cannot."""
    try:
        mechanisms = _resolved(policy, content) if known is None else known
        if mechanisms is None:
            return None
        return Spending(mechanisms, tuple(of.section.index.match(m.facts) for m in mechanisms))
    except (InvalidValue, PredicateFailed):
        return None


def _resolved(policy: CompiledPolicy, content: Content) -> tuple[Resolved, ...] | None:
    body = {"release": "", "by": content.by, "mechanisms": decode(content.mechanisms)}
    mechanisms, problems = resolve(release_of(body), policy, certificates_of(policy))
    return None if problems else mechanisms
