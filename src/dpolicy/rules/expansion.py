"""Checked policy set → rules: base policies to base rules, then Algorithm 1 of the paper.

Each rule stores the number of its budget in a table of distinct budgets. So the expansion applies a
budget function once to each distinct budget, not once to each rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.policy.model import (
    AttributePolicy,
    BasePolicy,
    BudgetFunction,
    BudgetStatement,
    CategoryPolicy,
    CustomPolicy,
    Extension,
    Policy,
    PolicySet,
    Same,
    base_policies,
    extensions,
)
from dpolicy.predicates.expression import Predicate, UsesAny
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.thresholds import BudgetBound, Profile, bound_for_budget
from dpolicy.rules.budget_functions import apply_to_all
from dpolicy.rules.rule import BaseRule, RuleProduct, SettingAxis, SettingFactor
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import LocatedText


class _Scope(NamedTuple):
    """One scope of a base policy; the last three are the fields of `BaseRule`."""

    name: str
    predicate: Predicate
    budget: Budget
    subject: str = ""
    level: str = ""
    risk: str = ""


def expand(
    checked: CheckedPolicySet, section: tuple[Policy, ...], diagnostics: DiagnosticCollector
) -> RuleProduct:
    """Return all rules of one section. Skip policies that have errors."""
    valid = tuple(policy for policy in section if policy.name not in checked.faulty)
    bases = tuple(
        base for p in base_policies(valid) for base in _base_rules(checked, p, diagnostics)
    )
    section_extensions = extensions(valid)
    axes = tuple(_setting_axis(checked, extension) for extension in section_extensions)
    each_release = section is checked.policies.each_release
    if not _is_within_limit(checked, bases, axes, section, diagnostics):
        bases = ()
    budgets, numbers = _number_budgets(checked, bases, section_extensions, diagnostics)
    bounds, bound_numbers = _number_bounds(checked, budgets, numbers, each_release=each_release)
    plain = tuple(budget for budget, _ in budgets)
    profiles = tuple(profile for _, profile in budgets)
    return RuleProduct(bases, axes, plain, profiles, bounds, numbers, bound_numbers, each_release)


def _is_within_limit(
    checked: CheckedPolicySet,
    bases: tuple[BaseRule, ...],
    axes: tuple[SettingAxis, ...],
    section: tuple[Policy, ...],
    diagnostics: DiagnosticCollector,
) -> bool:
    total = len(bases) * prod(len(axis) for axis in axes)
    limit = checked.policies.accounting.max_rules
    if total > limit:
        factors = " × ".join(str(n) for n in (len(bases), *(len(axis) for axis in axes)))
        message = f"these policies make {total:,} rules ({factors}); the limit is {limit:,}"
        diagnostics.report(
            "P046",
            message,
            section[-1].span,
            "use fewer settings, or raise `accounting: max-rules`",
        )
    return total <= limit


def _base_rules(
    checked: CheckedPolicySet, policy: BasePolicy, diagnostics: DiagnosticCollector
) -> list[BaseRule]:
    profile = (
        Profile(policy.profile) if policy.profile else checked.policies.accounting.used_profile
    )
    match policy:
        case CustomPolicy():
            predicate, budget = checked.predicates[policy.when], _budget(checked, policy.budget)
            scopes = [_Scope(str(policy.name), predicate, budget)]
        case AttributePolicy():
            scopes = _attribute_scopes(checked, policy)
        case CategoryPolicy():
            scopes = _category_scopes(checked, policy, diagnostics)
    return [
        BaseRule(
            scope.name,
            str(policy.name),
            scope.predicate,
            str(unit),
            scope.budget,
            profile,
            policy.span,
            scope.subject,
            scope.level,
            scope.risk,
        )
        for unit in policy.units
        for scope in scopes
    ]


def _attribute_scopes(checked: CheckedPolicySet, policy: AttributePolicy) -> list[_Scope]:
    scopes: list[_Scope] = []
    for name, attribute in checked.policies.attributes.items():
        statement = _budget_statement(policy.exceptions, policy.budgets, name, attribute.risk)
        scopes.append(
            _Scope(
                f"{policy.name}[{name}]",
                UsesAny(frozenset({str(name)})),
                _budget(checked, statement),
                subject=str(name),
                risk=str(attribute.risk or ""),
            )
        )
    return scopes


def _category_scopes(
    checked: CheckedPolicySet, policy: CategoryPolicy, diagnostics: DiagnosticCollector
) -> list[_Scope]:
    """Return cumulative scopes: each membership level includes all closer levels."""
    member_budgets = [
        _budget(checked, _budget_statement(policy.exceptions, policy.budgets, name, category.risk))
        for name, category in checked.policies.categories.items()
    ]
    levels = checked.policies.membership_levels
    members = _members_by_level(checked.policies)
    by_level: dict[str, list[Budget]] = {}
    for level in levels:
        function = next((f for key, f in policy.levels.items() if key == level), Same())
        what = f"the level `{level}` of `{policy.name}`"
        by_level[level] = apply_to_all(
            function, member_budgets, what, checked.functions, diagnostics
        )
    return [
        _Scope(
            f"{policy.name}[{name}, {level}]",
            UsesAny(members[name, level]),
            by_level[level][position],
            subject=str(name),
            level=str(level),
            risk=str(category.risk or ""),
        )
        for position, (name, category) in enumerate(checked.policies.categories.items())
        for level in levels
    ]


def _members_by_level(policies: PolicySet) -> dict[tuple[str, str], frozenset[str]]:
    """Return the attributes of each category at each membership level or a closer one."""
    exact: dict[tuple[str, str], set[str]] = {}
    for name, attribute in policies.attributes.items():
        for stated_level, categories in attribute.memberships.items():
            for category in categories:
                exact.setdefault((str(category), str(stated_level)), set()).add(str(name))
    cumulative: dict[tuple[str, str], frozenset[str]] = {}
    for category in policies.categories:
        members: set[str] = set()
        for level in policies.membership_levels:
            members |= exact.get((str(category), level), set())
            cumulative[str(category), level] = frozenset(members)
    return cumulative


def _budget_statement(
    exceptions: Mapping[LocatedText, BudgetStatement],
    budgets: Mapping[LocatedText, BudgetStatement],
    name: LocatedText,
    risk: LocatedText | None,
) -> BudgetStatement:
    """Return the exception for an attribute or category, or the budget of its risk level."""
    return budgets[risk] if name not in exceptions and risk is not None else exceptions[name]


def _budget(checked: CheckedPolicySet, definition: BudgetStatement) -> Budget:
    if definition.unlimited:
        return Unlimited()
    if definition.rho is not None:
        return Zcdp(definition.rho)
    if definition.mu is not None:
        return Gdp(definition.mu)
    if definition.renyi is not None:
        return Renyi(definition.renyi)
    delta = definition.delta if definition.delta is not None else checked.policies.accounting.delta
    return EpsilonDelta(definition.epsilon or Fraction(0), delta or Fraction(0))


def _setting_axis(checked: CheckedPolicySet, extension: Extension) -> SettingAxis:
    return tuple(
        SettingFactor(
            str(extension.name),
            str(setting.name),
            checked.predicates[setting.when],
            tuple(map(str, setting.below)),
            setting.span,
        )
        for setting in extension.settings
    )


#: A budget with the profile that turns it into thresholds.
_ProfiledBudget = tuple[Budget, Profile]


def _number_budgets(
    checked: CheckedPolicySet,
    bases: Sequence[BaseRule],
    section_extensions: Sequence[Extension],
    diagnostics: DiagnosticCollector,
) -> tuple[list[_ProfiledBudget], NDArray[np.int32]]:
    """Return the distinct budgets, and the budget number of every rule."""
    distinct: dict[_ProfiledBudget, int] = {}
    budget_of_base = np.array(
        [distinct.setdefault((b.budget, b.profile), len(distinct)) for b in bases], dtype=np.int32
    )
    if not bases:
        return [], budget_of_base
    table = np.arange(len(distinct), dtype=np.int32).reshape(-1, 1)
    for extension in section_extensions:
        previous = list(distinct)
        distinct = {}
        columns = []
        for setting in extension.settings:
            what = f"the setting `{setting.name}` of `{extension.name}`"
            columns.append(
                _image_numbers(checked, setting.function, previous, distinct, what, diagnostics)
            )
        step = np.array(columns, dtype=np.int32).T.reshape(len(previous), len(columns))
        table = step[table].reshape(len(table), -1)
    return list(distinct), table[budget_of_base].reshape(-1)


def _image_numbers(
    checked: CheckedPolicySet,
    function: BudgetFunction,
    budgets: Sequence[_ProfiledBudget],
    distinct: dict[_ProfiledBudget, int],
    what: str,
    diagnostics: DiagnosticCollector,
) -> list[int]:
    """Apply one setting to all budgets; return the number of each result in `distinct`."""
    results = apply_to_all(
        function, [budget for budget, _ in budgets], what, checked.functions, diagnostics
    )
    profiled = [(result, profile) for result, (_, profile) in zip(results, budgets, strict=True)]
    return [distinct.setdefault(pair, len(distinct)) for pair in profiled]


def _number_bounds(
    checked: CheckedPolicySet,
    budgets: Sequence[_ProfiledBudget],
    numbers: NDArray[np.int32],
    *,
    each_release: bool,
) -> tuple[tuple[BudgetBound, ...], NDArray[np.int32]]:
    """Return the distinct bounds, and the bound number of every rule."""
    accounting = checked.policies.accounting
    exact = each_release and accounting.defaults.exact_releases
    distinct: dict[BudgetBound, int] = {}
    bounds = [
        bound_for_budget(
            budget,
            profile,
            accounting.orders,
            accounting.leaks_for(profile),
            accounting.shares_for(profile),
            exact=exact,
        )
        for budget, profile in budgets
    ]
    bound_of_budget = np.array(
        [distinct.setdefault(bound, len(distinct)) for bound in bounds], dtype=np.int32
    )
    return tuple(distinct), bound_of_budget[numbers] if len(numbers) else numbers
