"""Differences between two compiled policies, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpolicy.policy.model import PolicySet
from dpolicy.predicates.expression import Always
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.thresholds import implies_bound
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that two policies have differently."""

    kind: str
    name: str
    unit: str
    before: Any
    after: Any
    each_release: bool

    def as_json(self) -> dict[str, Any]:
        """The difference for programs."""
        return {
            "change": self.kind,
            "rule": self.name,
            "unit": self.unit,
            "before": self.before,
            "after": self.after,
            "each-release": self.each_release,
        }


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[RuleChange]:
    """Rules that were added, removed, tightened, loosened or changed, by name and unit."""
    found = []
    for before, after in zip(old.sections, new.sections, strict=True):
        mine, theirs = _by_name(before), _by_name(after)
        for key in dict.fromkeys([*mine, *theirs]):
            change = _change(mine.get(key), theirs.get(key))
            if change is not None:
                found.append(change)
    return found


def only_tightens(old: CompiledPolicy | None, new: CompiledPolicy) -> bool:
    """Whether whatever the new policy allows, the old one would have allowed; in doubt, it is not.

    Everything but the rules must be said alike. A rule that is added only binds, unless it is the
    first to cover some mechanism, which would have been denied for want of any rule.
    """
    if old is None or _rest(old) != _rest(new):
        return False
    kinds = {difference.kind for difference in diff_policies(old, new)}
    everything = any(all(p == Always() for p in rule.predicates) for rule in old.cumulative.rules)
    return kinds <= ({"tightened", "added"} if everything else {"tightened"})


def _rest(policy: CompiledPolicy) -> PolicySet:
    return replace(policy.policy_set, name=None, policies=(), each_release=())


def _by_name(section: CompiledSection) -> dict[tuple[str, str], Rule]:
    return {(rule.name, rule.unit): rule for rule in section.rules}


def _change(old: Rule | None, new: Rule | None) -> RuleChange | None:
    either = new or old
    if either is None or (old is not None and new is not None and _same(old, new)):
        return None
    return RuleChange(
        _kind(old, new),
        either.name,
        either.unit,
        budget_to_json(old.budget) if old else None,
        budget_to_json(new.budget) if new else None,
        either.each_release,
    )


def _same(old: Rule, new: Rule) -> bool:
    return old.bound == new.bound and old.predicates == new.predicates


def _kind(old: Rule | None, new: Rule | None) -> str:
    if old is None:
        return "added"
    if new is None:
        return "removed"
    if old.predicates != new.predicates:
        return "changed scope"
    if implies_bound(new.bound, old.bound):
        return "tightened"
    return "loosened" if implies_bound(old.bound, new.bound) else "changed"
