"""The rules of a policy by what they are about: policy, category, attribute, unit, and scope.

Rules of equivalent scope stand together whatever their unit: what a rider may lose for good beside
what may be lost in one month.
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
    """What a base rule is about: everything, one attribute, one category, or what a policy says."""

    kind: str
    name: str
    level: str = ""

    @property
    def title(self) -> str:
        """For people."""
        if self.kind == "everything":
            return "everything"
        return f"{self.name} · {self.level}" if self.level else self.name


@lru_cache(maxsize=8)
def subjects(policy: CompiledPolicy) -> tuple[RuleSubject, ...]:
    """What each base rule over all releases is about."""
    kinds = {str(said.name): type(said) for said in policy.policy_set.policies}
    return tuple(_subject(base, kinds[base.policy]) for base in policy.cumulative.rules.bases)


def _subject(base: BaseRule, kind: type[object]) -> RuleSubject:
    inside = base.name.removeprefix(base.policy).strip("[]")
    if kind is AttributePolicy:
        return RuleSubject("attribute", inside)
    if kind is CategoryPolicy:
        name, _, level = inside.rpartition(", ")
        return RuleSubject("category", name, level)
    if isinstance(base.predicate, Always):
        return RuleSubject("everything", "everything")
    return RuleSubject("custom", base.name)


def scope_title(policy: CompiledPolicy, rule: Rule) -> str:
    """The scope of a rule, for people."""
    own = subjects(policy)[rule.number // policy.cumulative.rules.width].title
    return TIMES.join((own, *(setting.name for setting in rule.settings)))


def scope_numbers(policy: CompiledPolicy, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """The same number for rules of equivalent scope."""
    arrangement, width = policy.cumulative.factor_orders, policy.cumulative.rules.width
    classes = np.array([arrangement.scopes.classes[s] for s in arrangement.scope_of_base], np.intp)
    found: NDArray[np.intp] = classes[numbers // width] * width + numbers % width
    return found


def matching_bases(policy: CompiledPolicy, filters: Mapping[str, str]) -> NDArray[np.bool_]:
    """Which base rules are about a policy, category, attribute or unit; all that are named."""
    found = [
        _is_about(base, subject, filters)
        for base, subject in zip(policy.cumulative.rules.bases, subjects(policy), strict=True)
    ]
    return np.array(found, dtype=bool)


def _is_about(base: BaseRule, subject: RuleSubject, filters: Mapping[str, str]) -> bool:
    policy, unit = filters.get("policy"), filters.get("unit")
    category, attribute = filters.get("category"), filters.get("attribute")
    return (
        policy in (None, base.policy)
        and unit in (None, base.unit)
        and (category is None or (subject.kind == "category" and subject.name == category))
        and (attribute is None or reads_attribute(base.predicate, attribute))
    )
