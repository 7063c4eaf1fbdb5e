"""Groups of releases with identical charges, and the balances that they add up to.

The charge depends on mechanisms, their meaning, author and month, not on the id, so a balance is
the sum of count × cost over groups. Folding a long ledger takes time in the number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.balances.planned_charge import PlannedCharge
from dpolicy.decisions.completion import Reading, complete_meaning
from dpolicy.decisions.decide import charges_by_region
from dpolicy.decisions.resolution import (
    ResolvedMechanism,
    resolve_or_reject,
    resolve_recorded,
    resolve_release,
)
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.ledger.canonical import decode_canonical
from dpolicy.privacy.loss import Certificates, unbounded_loss
from dpolicy.privacy.loss_arrays import LossArray, add_saturating, loss_to_row
from dpolicy.releases.body import release_from_body
from dpolicy.releases.meaning import meaning_from_text, meaning_to_text
from dpolicy.releases.regions import Point, contains
from dpolicy.releases.release import Release
from dpolicy.rules.rule_index import ScopeMatch

#: The meaning of a release that was recorded before the first policy, and how the first policy
#: completes it: in a record of format 3, and in a record of format 1 or 2.
PENDING_MEANINGS: Mapping[str, Reading] = {"": Reading.STRICT, "legacy": Reading.LEGACY}
NO_MEANING, NO_LEGACY_MEANING = PENDING_MEANINGS

#: Largest number of groups whose charges are kept.
MAX_KEPT_CHARGES = 4_096

#: Called during long work, to let other threads run.
Pause = Callable[[], None]


def never_pause() -> None:
    """Let the work go on."""


#: The resolved mechanisms of one release.
Resolution = tuple[ResolvedMechanism, ...]


@dataclass(slots=True)
class ChargeGroup:
    """Releases with the same author, mechanisms (as canonical bytes), meaning and month. Mutable.

    `meaning` is the text of `releases.meaning`, or a value of `PENDING_MEANINGS`. `month` is the
    ordinal of its first day; `count` is the number of releases that are charged now. `release_ids`
    are releases that joined the group since the archive of the state was made; some may have left
    it. `number` is the position of the group in its state, and `chain` a hash of its content and of
    those before it, which differs between processes.
    """

    by: str
    mechanisms: bytes
    meaning: str
    month: int
    release_ids: list[str] = field(default_factory=list)
    count: int = 0
    number: int = 0
    chain: int = 0

    def copy(self) -> ChargeGroup:
        """Return an independent copy."""
        return replace(self, release_ids=list(self.release_ids))


@dataclass(frozen=True, slots=True)
class ResolvedChargeGroup:
    """A charge group resolved under a policy: its mechanisms and the scopes they match."""

    mechanisms: Resolution
    matches: tuple[ScopeMatch, ...]


class SpendingTotals:
    """Balances of all charge groups under one policy. Mutable; owned by a `LedgerState`.

    A group that the policy cannot resolve is charged an unbounded loss to every rule.
    """

    def __init__(self, enforced: EnforcedPolicy) -> None:
        self.enforced = enforced
        self.section = enforced.cumulative
        self._balances = self.section.empty_balances()
        self._charged_counts: dict[int, int] = {}
        self._cutoff = 0
        self._is_updating = False
        self._resolutions: dict[int, Resolution] = {}
        #: Memo of resolved groups; None for a group that the policy cannot resolve.
        self._resolved_groups: dict[int, ResolvedChargeGroup | None] = {}
        self._groups_by_base: dict[int, list[int]] = {}
        self._indexed_groups = 0
        #: Memo of the charges of one release of a group.
        self._charges: dict[int, tuple[Charge, ...]] = {}

    def copy(self) -> SpendingTotals:
        """Return independent totals; the memo of resolved groups is copied too."""
        other = SpendingTotals(self.enforced)
        other._balances, other._charged_counts = self._balances.copy(), dict(self._charged_counts)
        other._cutoff, other._is_updating = self._cutoff, self._is_updating
        other._resolutions = dict(self._resolutions)
        other._resolved_groups = dict(self._resolved_groups)
        other._groups_by_base = {base: list(of) for base, of in self._groups_by_base.items()}
        other._indexed_groups = self._indexed_groups
        return other

    @property
    def balances(self) -> Balances:
        """The balances of the last update."""
        return self._balances

    @property
    def cutoff(self) -> int:
        """The day before which time steps are collapsed in the balances."""
        return self._cutoff

    def is_current(self, month: int) -> bool:
        """Return whether the last update completed, and applies to `month`."""
        return not self._is_updating and self.section.granularities.cutoff(month) == self._cutoff

    def outdated_groups(self, groups: list[ChargeGroup]) -> set[int]:
        """Return the numbers of the groups whose count is not the charged one."""
        charged = self._charged_counts.get
        return {number for number, group in enumerate(groups) if group.count != charged(number, 0)}

    def update(
        self,
        groups: list[ChargeGroup],
        changed: Set[int],
        month: int,
        pause: Pause = never_pause,
    ) -> None:
        """Charge the changed groups, and collapse time as of `month`; call `pause` after each.

        Recompute all balances if a sum cannot be subtracted from, if the last update was
        interrupted, or if the last update was for a later month.
        """
        cutoff = self.section.granularities.cutoff(month)
        if not changed and self.is_current(month):
            return
        was_interrupted, self._is_updating = self._is_updating, True
        decreased = [n for n in changed if groups[n].count < self._charged_counts.get(n, 0)]
        recompute = was_interrupted or cutoff < self._cutoff
        if recompute or any(not self._subtract_decrease(n, groups[n]) for n in decreased):
            self._balances, self._charged_counts = self.section.empty_balances(), {}
            changed = set(range(len(groups)))
        for number in sorted(changed):
            self._add_increase(number, groups[number])
            pause()
        has_old = any(self.section.granularities.cutoff(groups[n].month) < cutoff for n in changed)
        if cutoff != self._cutoff or has_old:
            self._balances.collapse_time(cutoff)
        self._resolutions.clear()
        self._cutoff, self._is_updating = cutoff, False

    def charge_by_plan(
        self,
        number: int,
        group: ChargeGroup,
        resolved: ResolvedChargeGroup,
        charge: PlannedCharge | None,
    ) -> bool:
        """Charge one more release of a group by a planned charge.

        All other groups must be charged already. Return False, without a change, if the charge was
        planned for another cutoff than that of the group.
        """
        if charge is not None:
            if self.section.granularities.cutoff(group.month) != charge.charge.cutoff:
                return False
            self._is_updating = True
            charge.add_to(self._balances)
        self._charged_counts[number] = group.count
        if number not in self._resolved_groups:
            self._keep_resolved(number, resolved)
        self._is_updating = False
        return True

    def add_resolution(self, number: int, resolution: Resolution) -> None:
        """Use `resolution` for a group at the next update, instead of resolving it again."""
        self._resolutions[number] = resolution

    def share_resolutions(self, other: SpendingTotals) -> None:
        """Let other totals, of the same policy text, use the resolutions that are known here."""
        for number, resolved in self._resolved_groups.items():
            if resolved is not None and number not in other._resolved_groups:
                other._resolutions[number] = resolved.mechanisms

    def restore(self, balances: Balances, groups: list[ChargeGroup], cutoff: int) -> None:
        """Take over balances in which all groups are already charged."""
        self._balances, self._cutoff = balances, cutoff
        self._charged_counts = {number: group.count for number, group in enumerate(groups)}

    def charges_for_group(self, number: int, group: ChargeGroup) -> tuple[Charge, ...]:
        """Return the charges of one release of a group to the kept rules."""
        resolved = self._resolve_group(number, group)
        if resolved is None:
            kept = self.section.compiled.pruning.kept.nonzero()[0]
            unbounded = loss_to_row(unbounded_loss(self.section.certificates))
            return (Charge(kept, np.broadcast_to(unbounded, (len(kept), len(unbounded)))),)
        if number not in self._charges:
            if len(self._charges) >= MAX_KEPT_CHARGES:
                self._charges.clear()
            self._charges[number] = charges_by_region(
                self.section, resolved.mechanisms, resolved.matches, group.month
            )
        return self._charges[number]

    def groups_charged_to(
        self, rule: int, groups: list[ChargeGroup], point: Point | None
    ) -> Iterator[tuple[int, LossArray]]:
        """Yield the groups that are charged to a rule, with the cost of one release.

        With a `point`, yield only groups that are charged there.
        """
        self._index(groups)
        base = rule // self.section.compiled.rules.width
        unit = int(self.section.unit_of_base[base])
        for number in sorted(self._groups_by_base.get(base, ())):
            if groups[number].count:
                cost = self._cost_of_group(self._resolved_groups[number], rule, unit, point)
                if cost is not None:
                    yield number, cost

    def max_groups_charged_to(self, rule: int, groups: list[ChargeGroup]) -> int:
        """Return an upper bound on the number of groups that are charged to a rule."""
        self._index(groups)
        return len(self._groups_by_base.get(rule // self.section.compiled.rules.width, ()))

    def _cost_of_group(
        self, resolved: ResolvedChargeGroup | None, rule: int, unit: int, point: Point | None
    ) -> LossArray | None:
        """Return the cost of one release to a rule; None if the rule is not charged.

        `unit` is the position of the rule's privacy unit.
        """
        if resolved is None:
            return loss_to_row(unbounded_loss(self.section.certificates))
        index = self.section.compiled.index
        rows = [
            mechanism.costs[unit]
            for mechanism, match in zip(resolved.mechanisms, resolved.matches, strict=True)
            if index.contains(match, rule)
            and (not point or self._is_charged_at(mechanism, rule, point))
        ]
        return reduce(add_saturating, rows) if rows else None

    def _is_charged_at(self, mechanism: ResolvedMechanism, rule: int, point: Point) -> bool:
        blocks = self.section.granularities.blocks(mechanism.region, rule, self._cutoff)
        return contains(blocks, point)

    def _index(self, groups: list[ChargeGroup]) -> None:
        """Resolve the new groups. A group without a charged release is skipped."""
        for number in range(self._indexed_groups, len(groups)):
            if groups[number].count:
                self._resolve_group(number, groups[number])
        self._indexed_groups = len(groups)

    def _add_increase(self, number: int, group: ChargeGroup) -> None:
        increase = group.count - self._charged_counts.get(number, 0)
        if increase > 0:
            for charge in self.charges_for_group(number, group):
                self._balances.add(charge, increase)
        self._charged_counts[number] = group.count

    def _subtract_decrease(self, number: int, group: ChargeGroup) -> bool:
        """Subtract the releases that are no longer charged; return False if that is impossible."""
        decrease = self._charged_counts[number] - group.count
        for charge in self.charges_for_group(number, group):
            if not self._balances.subtract(charge, decrease):
                return False
        self._charged_counts[number] = group.count
        return True

    def _resolve_group(self, number: int, group: ChargeGroup) -> ResolvedChargeGroup | None:
        if number not in self._resolved_groups:
            resolution = self._resolutions.get(number)
            resolved = resolve_charge_group(self.enforced, group, resolution)
            self._keep_resolved(number, resolved)
        return self._resolved_groups[number]

    def _keep_resolved(self, number: int, resolved: ResolvedChargeGroup | None) -> None:
        self._resolved_groups[number] = resolved
        for base in self._find_bases(resolved):
            self._groups_by_base.setdefault(base, []).append(number)

    def _find_bases(self, resolved: ResolvedChargeGroup | None) -> Set[int]:
        if resolved is None:
            return set(range(len(self.section.compiled.rules.bases)))
        width = self.section.compiled.rules.width
        return {
            base
            for match in resolved.matches
            for base in (*match.base_scopes, *(number // width for number in match.witnesses))
        }


def resolve_charge_group(
    enforced: EnforcedPolicy, group: ChargeGroup, resolution: Resolution | None = None
) -> ResolvedChargeGroup | None:
    """Resolve a charge group under a policy; return None if the policy cannot resolve it."""
    mechanisms = resolve_mechanisms(enforced, group) if resolution is None else resolution
    if mechanisms is None:
        return None
    index = enforced.cumulative.compiled.index
    matches = tuple(index.possible_match(mechanism.predicate_input) for mechanism in mechanisms)
    return ResolvedChargeGroup(mechanisms, matches)


def resolve_mechanisms(
    enforced: EnforcedPolicy, group: ChargeGroup, certificates: Certificates | None = None
) -> Resolution | None:
    """Resolve the mechanisms of a charge group; return None if the policy cannot resolve them.

    Costs are in the certificates of the policy, or in `certificates`.
    """
    try:
        return _resolve_mechanisms(enforced, group, certificates)
    except (InvalidValue, ReleaseRejected):
        return None


def _resolve_mechanisms(
    enforced: EnforcedPolicy, group: ChargeGroup, certificates: Certificates | None
) -> Resolution:
    release = _parse_mechanisms(group.by, group.mechanisms)
    if group.meaning in PENDING_MEANINGS:
        reading = PENDING_MEANINGS[group.meaning]
        mechanisms, problems = resolve_release(release, enforced, certificates, reading)
        if problems:
            raise ReleaseRejected(problems)
        return mechanisms
    return resolve_recorded(release, meaning_from_text(group.meaning), enforced, certificates)


def complete_recorded(enforced: EnforcedPolicy, by: str, mechanisms: bytes, pending: str) -> str:
    """Return the meaning of recorded mechanisms under the policy that was active.

    Return `pending` if that policy could not resolve them.
    """
    reading = PENDING_MEANINGS[pending]
    try:
        release = _parse_mechanisms(by, mechanisms)
        resolve_or_reject(release, enforced, reading)
    except (InvalidValue, ReleaseRejected):
        return pending
    return meaning_to_text(complete_meaning(release, enforced.policy, reading))


def _parse_mechanisms(by: str, mechanisms: bytes) -> Release:
    return release_from_body({"release": "", "by": by, "mechanisms": decode_canonical(mechanisms)})
