"""Decision plan: one content under one policy, prepared so that deciding it again is quick.

A content is the author and the mechanisms of a release. The plan holds everything that does not
depend on the balances: the resolved mechanisms, their charge, the result of per-release rules, and
the bytes of the record except for id, time and numbers. A plan gives no answer if the mechanisms
have several regions, if a rule displays several numbers, or if the charge gives segments to a rule.
Then, and for every other question, the caller decides the release without the plan; the records of
both ways are the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.balances.planned_charge import ChargeLayout, PlannedCharge, RankedRule, plan_charge
from dpolicy.decisions.decide import (
    RuleChecks,
    Verdict,
    charges_by_region,
    check_release,
    find_uncovered,
    match_mechanisms,
)
from dpolicy.decisions.reasons import MAX_REASONS, rank_tightest, reason_with_room, reasons_for
from dpolicy.decisions.resolution import complete_or_reject
from dpolicy.errors import InvalidValue, InvariantBroken, ReleaseRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.plans.reason_text import (
    ReasonText,
    describe_reason_text,
    loss_json,
    nested_json,
)
from dpolicy.pdp.plans.record_text import PlannedAnswer, RecordText
from dpolicy.pdp.state.charge_groups import Resolution, ResolvedChargeGroup
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.planned_release import PlannedRelease
from dpolicy.releases.meaning import meaning_to_text
from dpolicy.releases.regions import Point
from dpolicy.releases.release import Release

#: Number of texts of locations that a plan keeps.
MAX_KEPT_LOCATIONS = 256


@dataclass(frozen=True, slots=True)
class FixedResult:
    """What per-release rules, coverage and predicates give, for any balances.

    `exceeded` are the texts of exceeded per-release rules; `tightest` are those of the tightest
    ones, each with its remaining share. All texts are nested (`reason_text`).
    """

    exceeded: tuple[str, ...]
    tightest: tuple[tuple[float, str], ...]
    uncovered: str
    errors: str
    allowed: bool


@dataclass(slots=True, eq=False)
class DecisionPlan:
    """One content under one policy. Fixed, except for memos.

    `day` is the day for which the charge was computed. `fixed` is None if the plan never applies.
    `charge` is None if the release is compared with no cumulative rule.
    """

    enforced: EnforcedPolicy
    release: Release
    resolved: ResolvedChargeGroup
    day: int
    fixed: FixedResult | None
    charge: PlannedCharge | None
    mechanisms: bytes
    meaning: str
    record: RecordText
    #: Texts of reasons by position; of exceeded rules by −1 − position.
    _texts: dict[int, ReasonText] = field(default_factory=dict)
    _locations: dict[tuple[int, Point], str] = field(default_factory=dict)

    def is_for(self, enforced: EnforcedPolicy | None, day: int) -> bool:
        """Return whether the plan was made for a policy and a day."""
        return self.enforced is enforced and self.day == day

    def answer(self, state: LedgerState, release: str) -> PlannedAnswer | None:
        """Return the answer to a release; None if the plan does not apply.

        The balances of the state must be updated.
        """
        fixed = self.fixed
        if fixed is None or not self.is_for(state.enforced, state.today):
            return None
        compared = self._compare(fixed, state)
        if compared is None:
            return None
        exceeded, tightest = compared
        allowed = fixed.allowed and not exceeded
        reasons = ", ".join(exceeded or tightest)
        sequence = state.sequence + 1
        return self.record.answer(
            release, sequence, fixed.errors, reasons, fixed.uncovered, allowed=allowed
        )

    def _compare(
        self, fixed: FixedResult, state: LedgerState
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        """Return the reasons of exceeded rules, and those of the tightest rules if there are none.

        Return None if the balances have no layout for the charge.
        """
        if self.charge is None:
            return fixed.exceeded, [text for _, text in fixed.tightest]
        balances = state.balances
        layout = self.charge.locate(balances)
        if layout is None:
            return None
        tightest = layout.decide(balances, MAX_REASONS)
        if tightest is not None:
            if fixed.exceeded:
                return fixed.exceeded, ()
            return (), self._tightest_reasons(fixed, tightest, layout, balances)
        rules = self._at_largest_cells(layout.find_exceeded(balances))
        own = (self._reason(rule, layout, balances, holds=False) for rule in rules)
        return (*fixed.exceeded, *own), ()

    def _at_largest_cells(self, exceeded: Sequence[RankedRule]) -> Sequence[RankedRule]:
        """Return each exceeded rule once, at its first cell with the largest loss."""
        if len({rule[1] for rule in exceeded}) == len(exceeded):
            return exceeded
        largest: dict[int, tuple[int, RankedRule]] = {}
        for rule in exceeded:
            position = rule[1]
            earlier = largest.get(position)
            if earlier is None or rule[3] > earlier[0]:  # reserves only make the number smaller
                reserves = self._text(-1 - position).rule.reserves
                size = rule[3] if reserves is None else reserves.lower_both(rule)[1]
                if earlier is None or size > earlier[0]:
                    largest[position] = size, rule
        return [rule for _, rule in largest.values()]

    def ensure_few_cuts(self, state: LedgerState) -> None:
        """Raise `ReleaseRejected` if the charge cuts the balances into too many cells."""
        if self.charge is not None:
            try:
                self.charge.ensure_few_cuts(state.balances)
            except InvalidValue as error:
                raise ReleaseRejected([error]) from None

    @property
    def region_count(self) -> int:
        """The number of boxes in all regions; 1 without regions."""
        regions = {mechanism.region for mechanism in self.resolved.mechanisms}
        return max(1, sum(1 if region is None else len(region.boxes) for region in regions))

    def planned_release(
        self, release: str, at: str, expires: str | None, *, allowed: bool
    ) -> PlannedRelease:
        """Return what the fold needs of a decided release with this content."""
        return PlannedRelease(
            release,
            at,
            expires,
            self.release.by,
            self.mechanisms,
            self.meaning,
            self.resolved,
            self.charge,
            allowed,
        )

    def _tightest_reasons(
        self,
        fixed: FixedResult,
        tightest: Sequence[RankedRule],
        layout: ChargeLayout,
        balances: Balances,
    ) -> list[str]:
        """Return the texts of the tightest rules; per-release rules come first among equals."""
        if not fixed.tightest:
            return [self._reason(rule, layout, balances, holds=True) for rule in tightest]
        ranked: list[tuple[float, str | RankedRule]] = [*fixed.tightest]
        ranked += [(rule[0], rule) for rule in tightest]
        ranked.sort(key=_BY_SHARE)
        return [
            item if isinstance(item, str) else self._reason(item, layout, balances, holds=True)
            for _, item in ranked[:MAX_REASONS]
        ]

    def _reason(
        self, rule: RankedRule, layout: ChargeLayout, balances: Balances, *, holds: bool
    ) -> str:
        position, before, after, delta_before, delta_after = rule[1:6]
        key = position if holds else -1 - position
        text = self._texts.get(key) or self._text(key)
        if text.rule.reserves is not None:
            before, after = text.rule.reserves.lower_both(rule)
        grid = layout.grid_by_position.get(position)
        at = "{}" if grid is None else self._location(position, grid.points[rule[-1]])
        reason = text.with_plain_numbers(at, before, after, delta_after)
        if reason is not None:
            return reason
        binding, formatter = text.rule.binding, text.rule.formatter
        if delta_after:
            number = int(self._own_charge.charge.rule_numbers[position])
            row = self._own_charge.after_row(balances, rule, grid)
            binding = nested_json(self.enforced.cumulative.binding_quantity(number, row))
        return text.with_losses(
            at,
            binding,
            loss_json(formatter, before, delta_before),
            loss_json(formatter, after, delta_after),
        )

    def _text(self, key: int) -> ReasonText:
        """Return the text of a reason by its key in `_texts`."""
        text = self._texts.get(key)
        if text is None:
            position = key if key >= 0 else -1 - key
            text = self._texts[key] = self._describe(position, holds=key >= 0)
        return text

    def _describe(self, position: int, *, holds: bool) -> ReasonText:
        charge, section = self._own_charge.charge, self.enforced.cumulative
        number = int(charge.rule_numbers[position])
        cost, variance = self._own_charge.displayed_costs[position]
        reserves = section.formatter_for(number).figures[0].reserves
        if reserves is not None:
            cost = reserves.epsilon.lower(cost, variance)
        delta = int(charge.rows[position, -1])
        return describe_reason_text(section, number, cost, delta, holds=holds)

    def _location(self, position: int, coordinates: NDArray[np.int64]) -> str:
        """Return the text of the location of a rule at a point."""
        point: Point = tuple(coordinates.tolist())
        text = self._locations.get((position, point))
        if text is None:
            charge = self._own_charge.charge
            granularities = self.enforced.cumulative.granularities
            number = int(charge.rule_numbers[position])
            location = granularities.location_for_rule(point, number, charge.cutoff)
            if len(self._locations) >= MAX_KEPT_LOCATIONS:
                self._locations.clear()
            text = self._locations[position, point] = nested_json(location)
        return text

    @property
    def _own_charge(self) -> PlannedCharge:
        if self.charge is None:
            raise InvariantBroken("a plan without a charge has no cumulative rules")
        return self.charge


_BY_SHARE = itemgetter(0)


def plan_release(enforced: EnforcedPolicy, release: Release, by: str, day: int) -> DecisionPlan:
    """Prepare the decision of a release and of all releases with the same content.

    Raise `ReleaseRejected` if the policy cannot resolve it.
    """
    meaning, mechanisms = complete_or_reject(release, enforced)
    section = enforced.cumulative
    matches, errors = match_mechanisms(section, mechanisms)
    charges: tuple[Charge, ...] = ()
    if section.compiled.rules and not errors:
        charges = charges_by_region(section, mechanisms, matches, day)
    charge = plan_charge(section, charges[0]) if len(charges) == 1 else None
    fixed: FixedResult | None = None
    if charge is not None or not charges:
        uncovered: tuple[str, ...] = ()
        if not enforced.policy.accounting.allow_uncovered:
            uncovered = find_uncovered(section, mechanisms, matches)
        fixed = _decide_fixed(enforced, mechanisms, day, uncovered, errors[:1])
    elif enforced.policy.accounting.defaults.exact_releases:
        # The certified ε is kept, so that the writer does not compute it under the write lock.
        _decide_fixed(enforced, mechanisms, day, (), ())
    mechanism_bytes = encode_canonical(release.body["mechanisms"])
    meaning_text = meaning_to_text(meaning)
    return DecisionPlan(
        enforced,
        release,
        ResolvedChargeGroup(mechanisms, tuple(match for match in matches if match is not None)),
        day,
        fixed,
        charge,
        mechanism_bytes,
        meaning_text,
        _record_text(enforced, release, by, mechanism_bytes, meaning_text),
    )


def _decide_fixed(
    enforced: EnforcedPolicy,
    mechanisms: Resolution,
    day: int,
    uncovered: tuple[str, ...],
    errors: tuple[str, ...],
) -> FixedResult | None:
    """Decide what does not depend on the balances; return None if a release is rejected.

    `uncovered` and `errors` are those of the cumulative rules.
    """
    section = enforced.each_release
    matches, own_errors = match_mechanisms(section, mechanisms)
    checks: tuple[RuleChecks, ...] = ()
    if section.compiled.rules and not own_errors:
        try:
            checks = (check_release(enforced, mechanisms, matches, day),)
        except InvalidValue:
            return None
    all_errors = (*own_errors[:1], *errors)
    verdict = Verdict(checks, uncovered, all_errors)
    is_exceeded = not all(check.holds.all() for check in checks)
    exceeded = reasons_for(verdict) if is_exceeded else ()
    return FixedResult(
        tuple(nested_json(reason.as_json()) for reason in exceeded),
        tuple(
            (share, nested_json(reason_with_room(check, position).as_json()))
            for check in checks
            for share, position in rank_tightest(check)
            if not is_exceeded
        ),
        nested_json(list(uncovered)) if uncovered else "[]",
        nested_json(list(all_errors)) if all_errors else "[]",
        verdict.allowed,
    )


def _record_text(
    enforced: EnforcedPolicy, release: Release, by: str, mechanisms: bytes, meaning: str
) -> RecordText:
    before = f'"by":{encode_basestring(release.by)},' if release.by else ""
    utility = release.body.get("utility")
    after = "" if utility is None else f',"utility":{encode_canonical(utility).decode()}'
    return RecordText(
        nested_json(enforced.policy.digest),
        f'{{{before}"mechanisms":{mechanisms.decode()},"release":',
        f"{after}}}",
        encode_basestring(by or release.by),
        encode_basestring(meaning),
    )
