"""Policy page: the active policy with the number of rules per line, and previews of candidates.

A preview compiles a candidate policy, compares it with the active policy, checks it against the
recorded releases and replays them. It never activates the candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpolicy.errors import PolicyRejected
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.policy_changes.impact import PolicyImpact, replay_under_policy
from dpolicy.pdp.policy_changes.sufficient_budget import is_smallest, smallest_sufficient_budget
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.privacy.budget import format_budget
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection, compile_policy
from dpolicy.rules.groups.rule_lines import RuleLine, group_rules
from dpolicy.rules.policy_diff import RuleChange, diff_policies
from dpolicy.rules.rule import TIMES
from dpolicy.service.dashboard.views.rule_status_row import RuleKey
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.spans import Span
from dpolicy.text.summaries import list_names
from dpolicy.text.yaml_reader import Source

#: Largest number of releases that a preview replays, so that the page responds in time: half a
#: millisecond per release with few rules, several with many.
MAX_RELEASES_REPLAYED_ON_PAGE = 2_000
#: Number of attributes or categories that a line of changed rules names.
MAX_MEMBERS_NAMED = 5
#: Largest number of changed rules in JSON; the counts include all of them.
MAX_CHANGES_LISTED = 100


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One line of a policy file, with the number of kept rules and of all rules derived from it."""

    number: int
    text: str
    kept: int
    total: int


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One file of the active policy."""

    name: str
    lines: tuple[PolicyLine, ...]

    @property
    def text(self) -> str:
        """Return the text of the file."""
        return "\n".join(line.text for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        rules = {line.number: [line.kept, line.total] for line in self.lines if line.total}
        return {"name": self.name, "text": self.text, "rules-by-line": rules}


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """The active policy."""

    name: str
    digest: str
    rule_count: int
    kept_count: int
    files: tuple[PolicyFile, ...]
    warnings: tuple[Diagnostic, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "digest": self.digest,
            "rules": {"total": self.rule_count, "kept": self.kept_count},
            "files": [file.as_json() for file in self.files],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """Rule of a candidate that recorded releases already exceed.

    `required` is a sufficient budget, and `is_smallest` whether no smaller one is.
    """

    rule: RuleKey
    budget: str
    required: Mapping[str, float | None]
    location: Mapping[str, str | int]
    spenders: tuple[str, ...]
    source: str
    is_smallest: bool

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.rule.as_json(),
            "budget": self.budget,
            "smallest-budget": dict(self.required),
            "at": dict(self.location),
            "releases": list(self.spenders),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """Rules of one policy, risk level and setting whose budgets change in the same way.

    `members` are their attributes or categories; `before` and `after` are budgets as JSON.
    """

    kind: str
    title: str
    units: tuple[str, ...]
    members: tuple[str, ...]
    count: int
    before: Any
    after: Any

    @property
    def member_text(self) -> str:
        """The first members, and how many there are beyond them."""
        return list_names(self.members, MAX_MEMBERS_NAMED)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "change": self.kind,
            "rules": self.title,
            "units": list(self.units),
            "members": list(self.members),
            "count": self.count,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True)
class CandidatePolicy:
    """Effect of a candidate policy; `compiled` is None if its text has errors."""

    compiled: CompiledPolicy | None
    diagnostics: tuple[Diagnostic, ...]
    changes: tuple[RuleChange, ...] = ()
    conflicts: tuple[ConflictRow, ...] = ()
    redefinitions: tuple[Redefinition, ...] = ()
    impact: PolicyImpact | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether the text is a valid policy."""
        return self.compiled is not None

    @property
    def change_counts(self) -> Mapping[str, int]:
        """Return the number of changed rules by kind of change."""
        return Counter(change.kind for change in self.changes)

    @property
    def change_lines(self) -> list[ChangeLine]:
        """Return the changed rules, one line for all rules that change in the same way."""
        return [
            _build_change_line(kind, line)
            for kind in self.change_counts
            for line in group_rules(
                [change for change in self.changes if change.kind == kind],
                lambda change: change.rule,
                lambda change: (
                    change.old and change.old.budget,
                    change.new and change.new.budget,
                ),
                max(len(change.rule.settings) for change in self.changes),
            )
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "valid": self.is_valid,
            "digest": self.compiled.digest if self.compiled else None,
            "diagnostics": [diagnostic.as_json() for diagnostic in self.diagnostics],
            "changes": [change.as_json() for change in self.changes[:MAX_CHANGES_LISTED]],
            "change-counts": dict(self.change_counts),
            "change-lines": [line.as_json() for line in self.change_lines[:MAX_CHANGES_LISTED]],
            "conflicts": [conflict.as_json() for conflict in self.conflicts],
            "redefinitions": [redefinition.as_json() for redefinition in self.redefinitions],
            "impact": self.impact.as_json() if self.impact else None,
        }


def _build_change_line(kind: str, line: RuleLine[RuleChange]) -> ChangeLine:
    key, first = line.key, line.items[0]
    levels = ", ".join(part for part in (key.policy, key.risk, key.level) if part)
    title = TIMES.join((levels, *key.settings))
    count = len(line.items)
    return ChangeLine(kind, title, line.units, line.members, count, first.before, first.after)


def build_policy_page(policy: CompiledPolicy) -> PolicyPage:
    """Build the page of a policy."""
    counts = _rules_by_line(policy)
    return PolicyPage(
        policy.policy_set.name or "policy",
        policy.digest,
        policy.rule_count,
        policy.kept_count,
        tuple(_build_file(source, counts) for source in policy.sources),
        policy.warnings,
    )


def _build_file(source: Source, counts: Mapping[tuple[str, int], tuple[int, int]]) -> PolicyFile:
    lines = (
        PolicyLine(number, text, *counts.get((source.name, number), (0, 0)))
        for number, text in enumerate(source.lines, 1)
    )
    return PolicyFile(source.name, tuple(lines))


def _rules_by_line(policy: CompiledPolicy) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the number of kept rules and of all rules, by file name and line."""
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for section in policy.sections:
        for span, kept, total in _rules_by_span(section):
            line = (span.source.name, span.line)
            old_kept, old_total = counts.get(line, (0, 0))
            counts[line] = (old_kept + kept, old_total + total)
    return counts


def _rules_by_span(section: CompiledSection) -> list[tuple[Span, int, int]]:
    """Return the number of kept rules and of all rules for each base policy and each setting."""
    rules, kept = section.rules, section.pruning.kept.reshape(-1, section.rules.width)
    counts = [
        (base.span, int(kept[number].sum()), rules.width) for number, base in enumerate(rules.bases)
    ]
    kept_by_settings = kept.sum(axis=0).reshape([len(axis) for axis in rules.axes] or [1])
    for dimension, axis in enumerate(rules.axes):
        other_dimensions = tuple(n for n in range(len(rules.axes)) if n != dimension)
        kept_on_axis = np.asarray(kept_by_settings.sum(axis=other_dimensions)).tolist()
        total = len(rules) // len(axis)
        for setting, kept_count in zip(axis, kept_on_axis, strict=True):
            counts.append((setting.span, int(kept_count), total))
    return counts


def preview_policy(
    decision_point: DecisionPoint, texts: Sequence[tuple[str, str]]
) -> CandidatePolicy:
    """Compute the effect of a candidate, given as pairs of file name and text."""
    try:
        compiled = compile_policy([Source(name, text) for name, text in texts])
    except PolicyRejected as error:
        diagnostics = tuple(d for d in error.diagnostics if isinstance(d, Diagnostic))
        return CandidatePolicy(None, diagnostics)
    active = decision_point.policy
    changes = diff_policies(active, compiled) if active else []
    conflicts = decision_point.conflicts(compiled)
    return CandidatePolicy(
        compiled,
        compiled.warnings,
        tuple(changes),
        tuple(_build_conflict_row(c) for c in conflicts if isinstance(c, RuleStatus)),
        tuple(c for c in conflicts if isinstance(c, Redefinition)),
        replay_under_policy(compiled, decision_point.records(), MAX_RELEASES_REPLAYED_ON_PAGE),
    )


def _build_conflict_row(conflict: RuleStatus) -> ConflictRow:
    rule = conflict.rule
    return ConflictRow(
        RuleKey(rule.name, rule.unit),
        format_budget(rule.budget),
        smallest_sufficient_budget(conflict),
        conflict.location,
        conflict.spenders,
        str(rule.base.span),
        is_smallest(conflict),
    )
