"""Enforced policy: a compiled policy with everything that decisions read at run time.

`enforce` computes it once per policy: the certificates in which losses are stored, the partition
space, and for each section the bounds, loss formatters and granularities as arrays. The value is
passed to every function that needs it; no module keeps a cache by policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances
from dpolicy.balances.granularities import RuleGranularities, granularities_for
from dpolicy.balances.loss_display import (
    DisplayColumns,
    LossFormatter,
    build_display_columns,
    certificates_for_display,
    is_unbounded,
    loss_formatter,
)
from dpolicy.balances.memo import Memo
from dpolicy.balances.partition_space import PartitionSpace, build_partition_space
from dpolicy.privacy.budget import budget_notion, budget_to_json
from dpolicy.privacy.certificates import PURE, Certificate
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray, loss_width, losses_to_array
from dpolicy.privacy.loss_distribution.unit_runs import LossRuns, runs_by_unit
from dpolicy.privacy.mechanisms.divergence_bounds import RoundingPlan, rounding_plan
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.privacy_filter import BoundArrays, build_bound_arrays
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, TouchedDays
from dpolicy.releases.regions import Box
from dpolicy.releases.release import MechanismRequest
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.text.summaries import one_line

#: Limit of the memos of costs and of rule descriptions. Pipelines submit the same mechanisms again.
MAX_MEMO_ENTRIES = 16_384

#: Largest number of sets of rules whose limits are kept: they have a row of integers per rule.
MAX_KEPT_LIMITS = 256


@dataclass(frozen=True, slots=True, eq=False)
class EnforcedSection:
    """A section of a policy compiled for decisions.

    `bounds` are by bound number, `formatters` and `display_columns` by budget number, and
    `unit_of_base` holds the position of the unit of each base scope.
    """

    compiled: CompiledSection
    certificates: Certificates
    bounds: BoundArrays
    formatters: tuple[LossFormatter, ...]
    unit_of_base: NDArray[np.intp]
    granularities: RuleGranularities
    display_columns: DisplayColumns
    _descriptions: Memo[int, dict[str, Any]] = field(default_factory=lambda: Memo(MAX_MEMO_ENTRIES))
    #: Texts of reasons by rule, and whether it holds; `pdp.plans.reason_text` writes them.
    reason_texts: Memo[tuple[int, bool], Any] = field(
        default_factory=lambda: Memo(MAX_MEMO_ENTRIES)
    )
    #: Limits by the bytes of rule numbers; `planned_charge` writes them.
    rule_limits: Memo[bytes, Any] = field(default_factory=lambda: Memo(MAX_KEPT_LIMITS))

    def bounds_for(self, numbers: NDArray[np.intp]) -> BoundArrays:
        """Return the budget bounds of rules, in the order of `numbers`."""
        return self.bounds[self.compiled.rules.bound_numbers[numbers]]

    def unit_positions(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the position of the privacy unit of each rule."""
        return self.unit_of_base[numbers // self.compiled.rules.width]

    @property
    def full_extent(self) -> Box:
        """The box that contains the whole partition space."""
        return self.granularities.space.box

    def empty_balances(self) -> Balances:
        """Return the balances before the first release."""
        return Balances.zero(self.granularities, loss_width(self.certificates))

    def formatter_for(self, number: int) -> LossFormatter:
        """Return the formatter for losses of a rule."""
        return self.formatters[int(self.compiled.rules.budget_numbers[number])]

    def binding_quantity(self, number: int, row: LossArray) -> str | None:
        """Return the quantity of a rule that a loss exceeds, or of which it uses the larger share.

        It is the notion of the budget, `delta` for stated δ, or `both` if it exceeds both; None for
        an unlimited budget. An unbounded loss exceeds the notion of the budget.
        """
        formatter = self.formatter_for(number)
        notion, rows = budget_notion(formatter.budget), row[np.newaxis]
        if notion is None or not row[-1] or is_unbounded(rows)[0]:
            return notion
        (certified,), (within_delta,) = self.bounds_for(np.array([number])).check_sides(rows)
        if not within_delta:
            return "delta" if certified else "both"
        (loss_share,), (delta_share,) = formatter.loss_shares(rows), formatter.delta_shares(rows)
        return "delta" if certified and delta_share > loss_share else notion

    def describe_rule(self, number: int) -> dict[str, Any]:
        """Return the fields of a `Reason` that depend on the rule only. Do not modify the dict."""
        return self._descriptions.get_or_compute(number, self._describe_rule)

    def _describe_rule(self, number: int) -> dict[str, Any]:
        rule = self.compiled.rules[number]
        return {
            "rule": rule.name,
            "policies": rule.policies,
            "unit": rule.unit,
            "budget": budget_to_json(rule.budget),
            "source": str(rule.base.span),
            "each_release": rule.each_release,
            "leaks": {"limit": self.formatter_for(number).displayed_delta_limit},
        }


class MechanismStatement(NamedTuple):
    """Everything that the cost of a mechanism depends on, besides the policy.

    The plan is in place of its certificates: its hash is its identity, which is quick.
    """

    mechanism: Mechanism
    unit: PrivacyUnit
    relation: NeighbouringRelation
    additive: bool
    restatements: tuple[tuple[PrivacyUnit, Mechanism], ...]
    days_read: TouchedDays | None
    plan: RoundingPlan


def state_mechanism(
    request: MechanismRequest,
    unit: PrivacyUnit,
    relation: NeighbouringRelation,
    restatements: tuple[tuple[PrivacyUnit, Mechanism], ...],
    certificates: Certificates,
) -> MechanismStatement:
    """Return the statement of a requested mechanism for a unit, with costs in `certificates`."""
    return MechanismStatement(
        request.mechanism,
        unit,
        relation,
        request.additive,
        restatements,
        request.days_read,
        rounding_plan(certificates),
    )


@dataclass(frozen=True, slots=True, eq=False)
class EnforcedPolicy:
    """A policy compiled for enforcement; made by `enforce`.

    `certificates` are those in which losses are stored under the policy.
    """

    policy: CompiledPolicy
    certificates: Certificates
    space: PartitionSpace
    cumulative: EnforcedSection
    each_release: EnforcedSection
    _costs: Memo[MechanismStatement, LossArray] = field(
        default_factory=lambda: Memo(MAX_MEMO_ENTRIES)
    )
    _runs: Memo[MechanismStatement, tuple[LossRuns, ...]] = field(
        default_factory=lambda: Memo(MAX_MEMO_ENTRIES)
    )

    def __repr__(self) -> str:
        return one_line(self, repr(self.policy))

    def _repr_html_(self) -> str:
        return self.policy._repr_html_()

    def with_own_memos(self, limit: int) -> EnforcedPolicy:
        """Return the same policy, which keeps costs separately, for work that needs other costs."""
        return replace(self, _costs=Memo(limit), _runs=Memo(limit))

    def mechanism_costs(self, statement: MechanismStatement) -> LossArray:
        """Return the cost of a mechanism, one row per unit of the policy.

        The units of the statement need not be units of the policy. The array is read-only.
        """
        return self._costs.get_or_compute(statement, self._compute_costs)

    def _compute_costs(self, statement: MechanismStatement) -> LossArray:
        units = self.policy.units
        losses = cost_by_unit(
            statement.mechanism,
            statement.unit,
            statement.relation,
            self._group_context(statement),
            statement.plan.certificates,
            self._restatements(statement),
        )
        costs = losses_to_array([losses[name] for name in units])
        costs.setflags(write=False)
        return costs

    def mechanism_runs(self, statement: MechanismStatement) -> tuple[LossRuns, ...]:
        """Return a mechanism as draws from loss pairs, for every unit of the policy."""
        return self._runs.get_or_compute(statement, self._compute_runs)

    def _compute_runs(self, statement: MechanismStatement) -> tuple[LossRuns, ...]:
        return runs_by_unit(
            statement.mechanism,
            statement.unit,
            statement.relation,
            self._group_context(statement),
            self._restatements(statement),
        )[: len(self.policy.units)]

    def _group_context(self, statement: MechanismStatement) -> GroupContext:
        """Return the units of the policy, then the units of the restatements that it lacks."""
        units = self.policy.units
        restated = {_context_name(unit, units): unit for unit, _ in statement.restatements}
        others = [replace(unit, name=name) for name, unit in restated.items() if name not in units]
        return GroupContext(
            (*units.values(), *others),
            statement.additive,
            statement.days_read,
            self.policy.vocabulary.covers,
            self.policy.accounting.defaults.cost_rules,
            self.policy.accounting.require_additive,
        )

    def _restatements(self, statement: MechanismStatement) -> dict[str, Mechanism]:
        units = self.policy.units
        return {_context_name(unit, units): stated for unit, stated in statement.restatements}


def _context_name(unit: PrivacyUnit, units: Mapping[str, PrivacyUnit]) -> str:
    """Return a name for a unit of a statement that no other unit of the policy has."""
    return unit.name if units.get(unit.name, unit) == unit else f"{unit.name} (recorded)"


def enforce(policy: CompiledPolicy, more: Certificates = ()) -> EnforcedPolicy:
    """Compile a policy for enforcement; losses have its certificates and `more`."""
    certificates = tuple(sorted({*certificates_for(policy), *more}))
    space = build_partition_space(policy)
    cumulative = _enforce_section(policy, policy.cumulative, space, certificates)
    each_release = _enforce_section(policy, policy.each_release, space, certificates)
    return EnforcedPolicy(policy, certificates, space, cumulative, each_release)


def certificates_for(policy: CompiledPolicy) -> Certificates:
    """Return the certificates that the bounds and the displayed losses of a policy need."""
    used: set[Certificate] = {PURE}
    accounting = policy.accounting
    for section in policy.sections:
        rules = section.rules
        used |= {c for bound in rules.bounds for clause in bound.clauses for c, _ in clause}
        for budget, profile in zip(rules.budgets, rules.profiles, strict=True):
            leaks, shares = accounting.leaks_for(profile), accounting.shares_for(profile)
            used |= set(certificates_for_display(budget, profile, accounting.orders, leaks, shares))
    return tuple(sorted(used))


def _enforce_section(
    policy: CompiledPolicy,
    section: CompiledSection,
    space: PartitionSpace,
    certificates: Certificates,
) -> EnforcedSection:
    rules = section.rules
    units, accounting = list(policy.units), policy.accounting
    formatters = tuple(
        loss_formatter(
            budget,
            profile,
            accounting.orders,
            certificates,
            accounting.leaks_for(profile),
            accounting.shares_for(profile),
        )
        for budget, profile in zip(rules.budgets, rules.profiles, strict=True)
    )
    return EnforcedSection(
        section,
        certificates,
        build_bound_arrays(rules.bounds, certificates),
        formatters,
        np.array([units.index(base.unit) for base in rules.bases], dtype=np.intp),
        granularities_for(policy, space, rules),
        build_display_columns(formatters, loss_width(certificates)),
    )
