"""Policy set → rules: base policies to base rules, then Algorithm 1 of the paper as a product.

Budgets are carried as numbers into a table of distinct budgets, so that a function is applied once
to each budget it meets, however many rules share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

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

#: The name, predicate and budget of one scope of a base policy.
_Scope = tuple[str, Predicate, Budget]


def expand(
    checked: CheckedPolicySet, section: tuple[Policy, ...], diagnostics: DiagnosticCollector
) -> RuleProduct:
    """All rules of one section. Policies with mistakes of their own are left out."""
    sound = tuple(policy for policy in section if policy.name not in checked.faulty)
    bases = tuple(base for p in base_policies(sound) for base in _bases(checked, p, diagnostics))
    widened = extensions(sound)
    axes = tuple(_axis(checked, extension) for extension in widened)
    each_release = section is checked.policies.each_release
    if not _within_limit(checked, bases, axes, section, diagnostics):
        bases = ()
    budgets, numbers = _budgets(checked, bases, widened, diagnostics)
    bounds, bound_numbers = _bounds(checked, budgets, numbers)
    plain = tuple(budget for budget, _ in budgets)
    profiles = tuple(profile for _, profile in budgets)
    return RuleProduct(bases, axes, plain, profiles, bounds, numbers, bound_numbers, each_release)


def _within_limit(
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
        shown = f"these policies make {total:,} rules ({factors}), more than {limit:,}"
        diagnostics.report(
            "P046", shown, section[-1].span, "use fewer settings, or raise `accounting: max-rules`"
        )
    return total <= limit


def _bases(
    checked: CheckedPolicySet, policy: BasePolicy, diagnostics: DiagnosticCollector
) -> list[BaseRule]:
    profile = Profile(policy.profile) if policy.profile else checked.policies.accounting.profile
    match policy:
        case CustomPolicy():
            scopes = [
                (str(policy.name), checked.predicates[policy.when], _budget(checked, policy.budget))
            ]
        case AttributePolicy():
            scopes = _attribute_scopes(checked, policy)
        case CategoryPolicy():
            scopes = _category_scopes(checked, policy, diagnostics)
    return [
        BaseRule(name, str(policy.name), predicate, str(unit), budget, profile, policy.span)
        for unit in policy.units
        for name, predicate, budget in scopes
    ]


def _attribute_scopes(checked: CheckedPolicySet, policy: AttributePolicy) -> list[_Scope]:
    scopes: list[_Scope] = []
    for name, attribute in checked.policies.attributes.items():
        said = _said(policy.exceptions, policy.budgets, name, attribute.risk)
        scope = UsesAny(frozenset({str(name)}))
        scopes.append((f"{policy.name}[{name}]", scope, _budget(checked, said)))
    return scopes


def _category_scopes(
    checked: CheckedPolicySet, policy: CategoryPolicy, diagnostics: DiagnosticCollector
) -> list[_Scope]:
    """Cumulative scopes: each membership level with all the closer ones."""
    names = list(checked.policies.categories)
    member = [
        _budget(checked, _said(policy.exceptions, policy.budgets, name, category.risk))
        for name, category in checked.policies.categories.items()
    ]
    levels = checked.policies.membership_levels
    reached = _members_by_level(checked.policies)
    by_level: dict[str, list[Budget]] = {}
    for level in levels:
        function = next((f for key, f in policy.levels.items() if key == level), Same())
        what = f"the level `{level}` of `{policy.name}`"
        by_level[level] = apply_to_all(function, member, what, checked.functions, diagnostics)
    return [
        (
            f"{policy.name}[{name}, {level}]",
            UsesAny(reached[name, level]),
            by_level[level][position],
        )
        for position, name in enumerate(names)
        for level in levels
    ]


def _members_by_level(policies: PolicySet) -> dict[tuple[str, str], frozenset[str]]:
    """The attributes of each category up to each level."""
    exact: dict[tuple[str, str], set[str]] = {}
    for attribute, said in policies.attributes.items():
        for stated, categories in said.memberships.items():
            for category in categories:
                exact.setdefault((str(category), str(stated)), set()).add(str(attribute))
    reached: dict[tuple[str, str], frozenset[str]] = {}
    for category in policies.categories:
        members: set[str] = set()
        for level in policies.membership_levels:
            members |= exact.get((str(category), level), set())
            reached[str(category), level] = frozenset(members)
    return reached


def _said(
    exceptions: Mapping[LocatedText, BudgetStatement],
    budgets: Mapping[LocatedText, BudgetStatement],
    name: LocatedText,
    risk: LocatedText | None,
) -> BudgetStatement:
    """The budget for one attribute or category: its own, or that of its risk level."""
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


def _axis(checked: CheckedPolicySet, extension: Extension) -> SettingAxis:
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


#: A budget together with the profile that turns it into thresholds.
_Profiled = tuple[Budget, Profile]


def _budgets(
    checked: CheckedPolicySet,
    bases: Sequence[BaseRule],
    widened: Sequence[Extension],
    diagnostics: DiagnosticCollector,
) -> tuple[list[_Profiled], NDArray[np.int32]]:
    """The distinct budgets, and for every rule the number of its own."""
    distinct: dict[_Profiled, int] = {}
    of_base = np.array(
        [distinct.setdefault((b.budget, b.profile), len(distinct)) for b in bases], dtype=np.int32
    )
    if not bases:
        return [], of_base
    table = np.arange(len(distinct), dtype=np.int32).reshape(-1, 1)
    for extension in widened:
        met = list(distinct)
        distinct = {}
        columns = []
        for setting in extension.settings:
            what = f"the setting `{setting.name}` of `{extension.name}`"
            columns.append(_column(checked, setting.function, met, distinct, what, diagnostics))
        step = np.array(columns, dtype=np.int32).T.reshape(len(met), len(columns))
        table = step[table].reshape(len(table), -1)
    return list(distinct), table[of_base].reshape(-1)


def _column(
    checked: CheckedPolicySet,
    function: BudgetFunction,
    met: Sequence[_Profiled],
    distinct: dict[_Profiled, int],
    what: str,
    diagnostics: DiagnosticCollector,
) -> list[int]:
    """The numbers of the images of all budgets under one setting."""
    results = apply_to_all(
        function, [budget for budget, _ in met], what, checked.functions, diagnostics
    )
    profiled = [(result, profile) for result, (_, profile) in zip(results, met, strict=True)]
    return [distinct.setdefault(pair, len(distinct)) for pair in profiled]


def _bounds(
    checked: CheckedPolicySet, budgets: Sequence[_Profiled], numbers: NDArray[np.int32]
) -> tuple[tuple[BudgetBound, ...], NDArray[np.int32]]:
    """The distinct bounds, and for every rule the number of its own."""
    orders = checked.policies.accounting.orders
    distinct: dict[BudgetBound, int] = {}
    of_budget = np.array(
        [distinct.setdefault(bound_for_budget(b, p, orders), len(distinct)) for b, p in budgets],
        dtype=np.int32,
    )
    return tuple(distinct), of_budget[numbers] if len(numbers) else numbers
