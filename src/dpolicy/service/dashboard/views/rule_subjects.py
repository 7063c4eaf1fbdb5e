"""Subjects of rules: everything, one attribute, one category, or a custom scope.

The overview filters rules by subject and groups rules of equivalent scope, with any unit: the
lifetime budget of a rider is next to the budget of a rider in one month.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.policy.model import AttributePolicy, CategoryPolicy
from dpolicy.predicates.expression import Always, reads_attribute
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import TIMES, BaseRule, Rule


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """Subject of a base rule. `level` is the level of a category, else empty."""

    kind: str
    name: str
    level: str = ""

    @property
    def title(self) -> str:
        """Return the subject for display."""
        if self.kind == "everything":
            return "everything"
        return f"{self.name} · {self.level}" if self.level else self.name


@lru_cache(maxsize=8)
def rule_subjects(policy: CompiledPolicy) -> tuple[RuleSubject, ...]:
    """Return the subject of each cumulative base rule."""
    kinds = {str(definition.name): type(definition) for definition in policy.policy_set.policies}
    return tuple(_find_subject(base, kinds[base.policy]) for base in policy.cumulative.rules.bases)


def _find_subject(base: BaseRule, kind: type[object]) -> RuleSubject:
    if kind is AttributePolicy:
        return RuleSubject("attribute", base.subject)
    if kind is CategoryPolicy:
        return RuleSubject("category", base.subject, base.level)
    if isinstance(base.predicate, Always):
        return RuleSubject("everything", "everything")
    return RuleSubject("custom", base.name)


def scope_title(policy: CompiledPolicy, rule: Rule) -> str:
    """Return the scope of a rule for display."""
    subject = rule_subjects(policy)[rule.number // policy.cumulative.rules.width]
    return TIMES.join((subject.title, *(setting.name for setting in rule.settings)))


def scope_numbers(policy: CompiledPolicy, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return a scope number for each rule; rules of equivalent scope have the same number."""
    orders, width = policy.cumulative.factor_orders, policy.cumulative.rules.width
    classes = np.array([orders.scopes.classes[s] for s in orders.scope_of_base], np.intp)
    scopes: NDArray[np.intp] = classes[numbers // width] * width + numbers % width
    return scopes


def matching_bases(policy: CompiledPolicy, filters: Mapping[str, str]) -> NDArray[np.bool_]:
    """Return for each base rule whether it matches the policy, category, attribute and unit."""
    matches = [
        _matches(base, subject, filters)
        for base, subject in zip(policy.cumulative.rules.bases, rule_subjects(policy), strict=True)
    ]
    return np.array(matches, dtype=bool)


def _matches(base: BaseRule, subject: RuleSubject, filters: Mapping[str, str]) -> bool:
    policy, unit = filters.get("policy"), filters.get("unit")
    category, attribute = filters.get("category"), filters.get("attribute")
    return (
        policy in (None, base.policy)
        and unit in (None, base.unit)
        and (category is None or (subject.kind == "category" and subject.name == category))
        and (attribute is None or reads_attribute(base.predicate, attribute))
    )
