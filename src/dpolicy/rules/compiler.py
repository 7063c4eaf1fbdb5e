"""Policy text → the rules to enforce, a line per stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dpolicy.errors import PolicyRejected
from dpolicy.language.checker import Checked, check
from dpolicy.language.diagnostics import Diagnostic, Findings
from dpolicy.language.formatter import digest
from dpolicy.language.model import Policy, PolicySet
from dpolicy.language.parser import parse, read_sources
from dpolicy.language.source import Source
from dpolicy.rules.expansion import expand
from dpolicy.rules.findings import report_rules, report_stated_order
from dpolicy.rules.index import Index, build_index
from dpolicy.rules.order import Comparison, order_predicates, order_units
from dpolicy.rules.pruning import Arrangement, Pruned, prune
from dpolicy.rules.rule import Rule, Rules


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """The rules of one section of a policy set, their order, and which of them are enforced."""

    rules: Rules
    arrangement: Arrangement
    pruned: Pruned
    index: Index

    def implied_by(self, rule: Rule) -> Rule | None:
        """The kept rule that implies a pruned one; None for a kept rule."""
        witness = int(self.pruned.witness[rule.number])
        return None if witness == rule.number else self.rules[witness]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy set that can be enforced, and what its authors should know about it."""

    sources: tuple[Source, ...]
    policies: PolicySet
    checked: Checked
    digest: str
    cumulative: Section
    each_release: Section
    warnings: tuple[Diagnostic, ...]

    @property
    def sections(self) -> tuple[Section, Section]:
        """The rules over all releases together, then those for each release by itself."""
        return self.cumulative, self.each_release

    @property
    def total(self) -> int:
        """|R|, the number of rules before pruning."""
        return sum(len(section.rules) for section in self.sections)

    @property
    def kept(self) -> int:
        """The number of rules that are enforced."""
        return sum(int(section.pruned.kept.sum()) for section in self.sections)

    @property
    def all_rules(self) -> Iterator[tuple[Rule, Rule | None]]:
        """Every rule with the kept one that implies it, if it is pruned."""
        return chain.from_iterable(
            ((rule, section.implied_by(rule)) for rule in section.rules)
            for section in self.sections
        )

    @property
    def rules(self) -> list[Rule]:
        """The rules that are enforced."""
        return [
            section.rules[int(number)]
            for section in self.sections
            for number in section.pruned.kept.nonzero()[0]
        ]


def load_policy(path: str | Path) -> CompiledPolicy:
    """The policy set of a file or directory. Raises `PolicyRejected` with every mistake."""
    return compile_policy(read_sources(Path(path)))


def compile_policy(sources: Sequence[Source]) -> CompiledPolicy:
    """Policy texts → the rules to enforce. Raises `PolicyRejected` with every mistake."""
    found = Findings()
    policies = parse(sources, found)
    if policies is None:
        raise PolicyRejected(found.all)
    checked = check(policies, found)
    comparison = Comparison(checked.vocabulary.schema)
    cumulative = _section(checked, policies.policies, comparison, found)
    each_release = _section(checked, policies.each_release, comparison, found)
    if found.errors:
        raise PolicyRejected(found.all)
    name = digest(policies)
    texts = tuple(sources)
    return CompiledPolicy(texts, policies, checked, name, cumulative, each_release, found.all)


def _section(
    checked: Checked, policies: tuple[Policy, ...], comparison: Comparison, found: Findings
) -> Section:
    rules = expand(checked, policies, found)
    report_stated_order(checked, policies, comparison, found)
    arrangement = arrange(rules, checked, comparison)
    pruned = prune(rules, arrangement)
    report_rules(checked, policies, rules, pruned, comparison, found)
    return Section(rules, arrangement, pruned, build_index(rules, pruned))


def arrange(rules: Rules, checked: Checked, comparison: Comparison) -> Arrangement:
    """The order of every factor of the rules."""
    scopes = {base.predicate: None for base in rules.bases}
    position = {predicate: number for number, predicate in enumerate(scopes)}
    units = sorted({base.unit for base in rules.bases})
    partitions = frozenset(map(str, checked.policies.partitions))
    return Arrangement(
        scope_of=tuple(position[base.predicate] for base in rules.bases),
        scopes=order_predicates(list(scopes), partitions, comparison),
        unit_of=tuple(units.index(base.unit) for base in rules.bases),
        units=order_units(units, checked),
        settings=tuple(
            order_predicates([setting.predicate for setting in axis], partitions, comparison)
            for axis in rules.axes
        ),
    )
