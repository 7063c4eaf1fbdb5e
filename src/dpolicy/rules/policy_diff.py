"""Differences between two compiled policies, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.thresholds import implies_bound
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Difference of one rule between two policies; `before` and `after` are budgets as JSON."""

    kind: str
    name: str
    unit: str
    before: Any
    after: Any
    each_release: bool

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of the change."""
        return {
            "change": self.kind,
            "rule": self.name,
            "unit": self.unit,
            "before": self.before,
            "after": self.after,
            "each-release": self.each_release,
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
    either = new or old
    if either is None or (old is not None and new is not None and _is_unchanged(old, new)):
        return None
    return RuleChange(
        _change_kind(old, new),
        either.name,
        either.unit,
        budget_to_json(old.budget) if old else None,
        budget_to_json(new.budget) if new else None,
        either.each_release,
    )


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
