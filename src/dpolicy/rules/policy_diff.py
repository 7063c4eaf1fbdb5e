"""Differences between two compiled policies, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.thresholds import implies_bound
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Difference of one rule between two policies; an added or removed rule has one side only."""

    kind: str
    old: Rule | None
    new: Rule | None

    @property
    def rule(self) -> Rule:
        """The new rule, or the removed one."""
        rule = self.new or self.old
        if rule is None:
            raise InvariantBroken("a change has no rule")
        return rule

    @property
    def name(self) -> str:
        """Name of the rule."""
        return self.rule.name

    @property
    def unit(self) -> str:
        """Privacy unit of the rule."""
        return self.rule.unit

    @property
    def before(self) -> Any:
        """The old budget as JSON; None for an added rule."""
        return budget_to_json(self.old.budget) if self.old else None

    @property
    def after(self) -> Any:
        """The new budget as JSON; None for a removed rule."""
        return budget_to_json(self.new.budget) if self.new else None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of the change."""
        return {
            "change": self.kind,
            "rule": self.name,
            "unit": self.unit,
            "before": self.before,
            "after": self.after,
            "each-release": self.rule.each_release,
        }


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[RuleChange]:
    """Return the added, removed, tightened, loosened and changed rules, by name and unit."""
    changes = []
    for before, after in zip(old.sections, new.sections, strict=True):
        old_rules, new_rules = _rules_by_name(before), _rules_by_name(after)
        for key in dict.fromkeys([*old_rules, *new_rules]):
            change = _compare(old_rules.get(key), new_rules.get(key))
            if change is not None:
                changes.append(change)
    return changes


def _rules_by_name(section: CompiledSection) -> dict[tuple[str, str], Rule]:
    return {(rule.name, rule.unit): rule for rule in section.rules}


def _compare(old: Rule | None, new: Rule | None) -> RuleChange | None:
    if old is not None and new is not None and _is_unchanged(old, new):
        return None
    return RuleChange(_change_kind(old, new), old, new)


def _is_unchanged(old: Rule, new: Rule) -> bool:
    return old.bound == new.bound and old.predicates == new.predicates


def _change_kind(old: Rule | None, new: Rule | None) -> str:
    if old is None:
        return "added"
    if new is None:
        return "removed"
    if old.predicates != new.predicates:
        return "changed scope"
    if implies_bound(new.bound, old.bound):
        return "tightened"
    return "loosened" if implies_bound(old.bound, new.bound) else "changed"
