"""The policy in force → its text with how many rules each line makes; and a candidate for it.

A candidate is never applied here: it is read, compared with the policy in force, held against the
past, and replayed. What it would change is told before anybody decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpolicy.errors import PolicyRejected
from dpolicy.pdp.conflicts import find_conflicts, smallest_sufficient_budget
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.impact import PolicyImpact, replay_under_policy
from dpolicy.privacy.budget import format_budget
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection, compile_policy
from dpolicy.rules.policy_diff import RuleChange, diff_policies
from dpolicy.service.dashboard.views.rule_status_row import RuleKey
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.yaml_reader import Source

#: More releases than this take too long to decide again while somebody waits: half a millisecond
#: each with few rules, some with many.
MAX_RELEASES_REPLAYED_ON_PAGE = 2_000
#: So many changed rules, conflicts and releases are listed; all of them are counted.
MAX_CHANGES_LISTED = 100


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A line of a policy text, and how many rules it has a part in, kept and in all."""

    number: int
    text: str
    kept: int
    total: int


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One file of the policy in force."""

    name: str
    lines: tuple[PolicyLine, ...]

    @property
    def text(self) -> str:
        """The file itself."""
        return "\n".join(line.text for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        rules = {line.number: [line.kept, line.total] for line in self.lines if line.total}
        return {"name": self.name, "text": self.text, "rules-by-line": rules}


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """The policy in force."""

    name: str
    digest: str
    total: int
    kept: int
    texts: tuple[PolicyFile, ...]
    warnings: tuple[Diagnostic, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "digest": self.digest,
            "rules": {"total": self.total, "kept": self.kept},
            "files": [text.as_json() for text in self.texts],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """A rule of a candidate that the past has already broken, and the least budget to do."""

    rule: RuleKey
    budget: str
    needs: Mapping[str, float | None]
    at: Mapping[str, str | int]
    releases: tuple[str, ...]
    source: str

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **self.rule.as_json(),
            "budget": self.budget,
            "smallest-budget": dict(self.needs),
            "at": dict(self.at),
            "releases": list(self.releases),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class CandidatePolicy:
    """What a text would do if it were the policy; nothing if it is none."""

    compiled: CompiledPolicy | None
    diagnostics: tuple[Diagnostic, ...]
    changes: tuple[RuleChange, ...] = ()
    conflicts: tuple[ConflictRow, ...] = ()
    impact: PolicyImpact | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the text is a policy."""
        return self.compiled is not None

    @property
    def change_counts(self) -> Mapping[str, int]:
        """How many rules change in which way."""
        return Counter(change.kind for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "readable": self.is_valid,
            "digest": self.compiled.digest if self.compiled else None,
            "diagnostics": [diagnostic.as_json() for diagnostic in self.diagnostics],
            "changes": [change.as_json() for change in self.changes[:MAX_CHANGES_LISTED]],
            "change-counts": dict(self.change_counts),
            "conflicts": [conflict.as_json() for conflict in self.conflicts],
            "impact": self.impact.as_json() if self.impact else None,
        }


def policy_page(policy: CompiledPolicy) -> PolicyPage:
    """The text of a policy and what its lines make."""
    counts = _rules_by_line(policy)
    return PolicyPage(
        policy.policy_set.name or "policy",
        policy.digest,
        policy.rule_count,
        policy.kept_count,
        tuple(
            PolicyFile(
                source.name,
                tuple(
                    PolicyLine(number, text, *counts.get((source.name, number), (0, 0)))
                    for number, text in enumerate(source.lines, 1)
                ),
            )
            for source in policy.sources
        ),
        policy.warnings,
    )


def _rules_by_line(policy: CompiledPolicy) -> dict[tuple[str, int], tuple[int, int]]:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for section in policy.sections:
        for span, kept, total in _rules_by_span(section):
            place = (span.source.name, span.line)
            before = found.get(place, (0, 0))
            found[place] = (before[0] + kept, before[1] + total)
    return found


def _rules_by_span(section: CompiledSection) -> list[tuple[Any, int, int]]:
    """Each base policy and each setting, with how many rules it is a factor of."""
    rules, kept = section.rules, section.pruning.kept.reshape(-1, section.rules.width)
    found = [
        (base.span, int(kept[number].sum()), rules.width) for number, base in enumerate(rules.bases)
    ]
    by_setting = kept.sum(axis=0).reshape([len(axis) for axis in rules.axes] or [1])
    for place, axis in enumerate(rules.axes):
        others = tuple(n for n in range(len(rules.axes)) if n != place)
        alive = np.asarray(by_setting.sum(axis=others)).tolist()
        every = len(rules) // len(axis)
        found += [(axis[n].span, int(alive[n]), every) for n in range(len(axis))]
    return found


def preview_policy(point: DecisionPoint, texts: Sequence[tuple[str, str]]) -> CandidatePolicy:
    """What texts would do as the policy; nothing is applied."""
    try:
        compiled = compile_policy([Source(name, text) for name, text in texts])
    except PolicyRejected as error:
        found = tuple(d for d in error.diagnostics if isinstance(d, Diagnostic))
        return CandidatePolicy(None, found)
    before = point.policy
    changes = diff_policies(before, compiled) if before else []
    broken = point.read_state(lambda state: find_conflicts(state.with_policy(compiled)))
    return CandidatePolicy(
        compiled,
        compiled.warnings,
        tuple(changes),
        tuple(
            ConflictRow(
                RuleKey(c.rule.name, c.rule.unit),
                format_budget(c.rule.budget),
                smallest_sufficient_budget(c),
                c.location,
                c.spenders,
                str(c.rule.base.span),
            )
            for c in broken
        ),
        replay_under_policy(compiled, point.records(), MAX_RELEASES_REPLAYED_ON_PAGE),
    )
