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

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection, certificates_for, enforced_sections
from dpolicy.decisions.decide import charges_by_region
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.errors import InvalidValue, PredicateFailed
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.privacy.loss import unbounded_loss
from dpolicy.privacy.loss_arrays import LossArray, add_saturating, loss_to_row
from dpolicy.releases.body import release_from_body
from dpolicy.releases.regions import Point, contains
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule_index import ScopeMatch

#: So many decided releases are remembered until they are recorded.
MAX_EXPECTED_RESOLUTIONS = 256


@dataclass(slots=True)
class ChargeGroup:
    """The mechanisms of releases, as canonical bytes, who asks, and in which month.

    `month` is the ordinal of its first day; `releases` are in order.
    """

    by: str
    mechanisms: bytes
    month: int
    release_ids: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedChargeGroup:
    """A content under a policy: its mechanisms and the rules they match, or None if unreadable."""

    mechanisms: tuple[ResolvedMechanism, ...]
    matches: tuple[ScopeMatch, ...]


class SpendingTotals:
    """What contents add up to under one policy.

    A past release that the policy cannot read is charged to every rule, never to none.
    """

    def __init__(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.of, _ = enforced_sections(policy)
        self._balances = self.of.empty_balances()
        self._charged: dict[int, int] = {}
        self._cutoff = 0
        self._changing = False
        self._spendings: dict[int, ResolvedChargeGroup | None] = {}
        self._by_base: dict[int, list[int]] = {}
        self._indexed = 0
        self._expected: dict[tuple[str, bytes], tuple[ResolvedMechanism, ...]] = {}

    def balances(self, contents: list[ChargeGroup], changed: set[int], month: int) -> Balances:
        """The balances in a month, after bringing the changed contents up to date.

        They are added up anew where a sum no longer knows its terms, where the last change was
        interrupted, and where somebody looked at a later month before.
        """
        cutoff = self.of.granularities.cutoff(month)
        if not changed and cutoff == self._cutoff and not self._changing:
            return self._balances
        interrupted, self._changing = self._changing, True
        fewer = [n for n in changed if contents[n].count < self._charged.get(n, 0)]
        anew = interrupted or cutoff < self._cutoff
        if anew or any(not self._take_away(n, contents[n]) for n in fewer):
            self._balances, self._charged = self.of.empty_balances(), {}
            changed = set(range(len(contents)))
        for number in sorted(changed):
            more = contents[number].count - self._charged.get(number, 0)
            for charge in self.charges_for_group(number, contents[number]) if more > 0 else ():
                self._balances.add(charge, more)
            self._charged[number] = contents[number].count
        older = any(self.of.granularities.cutoff(contents[n].month) < cutoff for n in changed)
        if cutoff != self._cutoff or older:
            self._balances.collapse_time(cutoff)
        self._cutoff, self._changing = cutoff, False
        return self._balances

    def remember_resolution(
        self, release: Release, mechanisms: tuple[ResolvedMechanism, ...]
    ) -> None:
        """Remember how a release that may soon be recorded was resolved, so as to do it once."""
        if len(self._expected) >= MAX_EXPECTED_RESOLUTIONS:
            self._expected.clear()
        self._expected[release.by, encode_canonical(release.body["mechanisms"])] = mechanisms

    @property
    def cutoff(self) -> int:
        """The day before which time steps are kept together in the balances."""
        return self._cutoff

    def restore(self, balances: Balances, contents: list[ChargeGroup], cutoff: int) -> None:
        """Take over balances in which all contents are charged already."""
        self._balances, self._cutoff = balances, cutoff
        self._charged = {number: content.count for number, content in enumerate(contents)}

    def charges_for_group(self, number: int, content: ChargeGroup) -> tuple[Charge, ...]:
        """What one release of a content costs each kept rule."""
        spending = self._spending(number, content)
        if spending is None:
            kept = self.of.compiled.pruning.kept.nonzero()[0]
            everything = loss_to_row(unbounded_loss(self.of.certificates))
            return (Charge(kept, np.broadcast_to(everything, (len(kept), len(everything)))),)
        return charges_by_region(self.of, spending.mechanisms, spending.matches, content.month)

    def groups_charged_to(
        self, rule: int, contents: list[ChargeGroup], at: Point | None
    ) -> Iterator[tuple[int, LossArray]]:
        """The contents that a rule is charged for, here or anywhere, with the cost of a release."""
        self._index(contents)
        section = self.of.compiled
        base, unit = rule // section.rules.width, int(self.of.unit_positions(np.array([rule]))[0])
        for number in sorted(self._by_base.get(base, ())):
            spending = self._spendings[number]
            if not contents[number].count:
                continue
            if spending is None:
                yield number, loss_to_row(unbounded_loss(self.of.certificates))
                continue
            pairs = zip(spending.mechanisms, spending.matches, strict=True)
            rows = [
                m.costs[unit]
                for m, match in pairs
                if section.index.lies_in(match, rule)
                and (
                    not at
                    or contains(self.of.granularities.blocks(m.region, rule, self._cutoff), at)
                )
            ]
            if rows:
                yield number, reduce(add_saturating, rows)

    def max_groups_charged_to(self, rule: int, contents: list[ChargeGroup]) -> int:
        """No fewer contents than a rule is charged for: how long it takes to go through them."""
        self._index(contents)
        return len(self._by_base.get(rule // self.of.compiled.rules.width, ()))

    def _index(self, contents: list[ChargeGroup]) -> None:
        for number in range(self._indexed, len(contents)):
            if contents[number].count:  # what never counted is not worth reading
                self._spending(number, contents[number])
        self._indexed = len(contents)

    def _take_away(self, number: int, content: ChargeGroup) -> bool:
        fewer = self._charged[number] - content.count
        if not all(
            self._balances.subtract(c, fewer) for c in self.charges_for_group(number, content)
        ):
            return False
        self._charged[number] = content.count
        return True

    def _spending(self, number: int, content: ChargeGroup) -> ResolvedChargeGroup | None:
        if number not in self._spendings:
            known = self._expected.pop((content.by, content.mechanisms), None)
            spending = resolve_charge_group(self.policy, self.of, content, known)
            self._spendings[number] = spending
            everywhere = range(len(self.of.compiled.rules.bases))
            bases = {b for m in spending.matches for b in m.base_scopes} if spending else everywhere
            for base in bases:
                self._by_base.setdefault(base, []).append(number)
        return self._spendings[number]


def resolve_charge_group(
    policy: CompiledPolicy,
    section: EnforcedSection,
    content: ChargeGroup,
    resolved: tuple[ResolvedMechanism, ...] | None = None,
) -> ResolvedChargeGroup | None:
    """A content as a policy reads it; None if it cannot."""
    try:
        mechanisms = _resolved(policy, content) if resolved is None else resolved
        if mechanisms is None:
            return None
        return ResolvedChargeGroup(
            mechanisms, tuple(section.compiled.index.match(m.predicate_input) for m in mechanisms)
        )
    except (InvalidValue, PredicateFailed):
        return None


def _resolved(policy: CompiledPolicy, content: ChargeGroup) -> tuple[ResolvedMechanism, ...] | None:
    body = {"release": "", "by": content.by, "mechanisms": decode_canonical(content.mechanisms)}
    mechanisms, problems = resolve_release(
        release_from_body(body), policy, certificates_for(policy)
    )
    return None if problems else mechanisms
