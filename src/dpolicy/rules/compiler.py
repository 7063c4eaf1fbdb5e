"""Policy text → the rules to enforce, a line per stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dpolicy.errors import PolicyRejected
from dpolicy.policy.checker import CheckedPolicySet, check_policies
from dpolicy.policy.formatter import policy_digest
from dpolicy.policy.model import Accounting, Partition, Policy, PolicySet
from dpolicy.policy.parser import parse_policies, read_sources
from dpolicy.policy.vocabulary import Vocabulary
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.rules.expansion import expand
from dpolicy.rules.lints import report_ineffective_rules, report_stated_order
from dpolicy.rules.pruning import FactorOrders, PruningResult, prune
from dpolicy.rules.rule import Rule, RuleProduct
from dpolicy.rules.rule_index import RuleIndex, build_index
from dpolicy.rules.scope_order import ScopeComparer, order_predicates, order_units
from dpolicy.text.diagnostics import Diagnostic, DiagnosticCollector
from dpolicy.text.spans import LocatedText
from dpolicy.text.yaml_reader import Source


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSection:
    """The rules of one section of a policy set, their order, and which of them are enforced."""

    rules: RuleProduct
    factor_orders: FactorOrders
    pruning: PruningResult
    index: RuleIndex

    def implied_by(self, rule: Rule) -> Rule | None:
        """The kept rule that implies a pruned one; None for a kept rule."""
        witness = int(self.pruning.implied_by[rule.number])
        return None if witness == rule.number else self.rules[witness]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy set that can be enforced, and what its authors should know about it."""

    sources: tuple[Source, ...]
    policy_set: PolicySet
    checked_policy_set: CheckedPolicySet
    digest: str
    cumulative: CompiledSection
    each_release: CompiledSection
    warnings: tuple[Diagnostic, ...]

    @property
    def sections(self) -> tuple[CompiledSection, CompiledSection]:
        """The rules over all releases together, then those for each release by itself."""
        return self.cumulative, self.each_release

    @property
    def vocabulary(self) -> Vocabulary:
        """The closed set of names that the policy set defines."""
        return self.checked_policy_set.vocabulary

    @property
    def units(self) -> Mapping[str, PrivacyUnit]:
        """The privacy units by name, in the order of the policy set."""
        return self.checked_policy_set.vocabulary.units

    @property
    def schema(self) -> ReleaseSchema:
        """The attributes and labels that a release may use."""
        return self.checked_policy_set.vocabulary.schema

    @property
    def partitions(self) -> Mapping[LocatedText, Partition]:
        """The partitions by name, in the order of the policy set."""
        return self.policy_set.partitions

    @property
    def accounting(self) -> Accounting:
        """The accounting settings: orders, δ, profile, collapse, coverage."""
        return self.policy_set.accounting

    @property
    def rule_count(self) -> int:
        """|R|, the number of rules before pruning."""
        return sum(len(section.rules) for section in self.sections)

    @property
    def kept_count(self) -> int:
        """The number of rules that are enforced."""
        return sum(int(section.pruning.kept.sum()) for section in self.sections)

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
            for number in section.pruning.kept.nonzero()[0]
        ]


def load_policy(path: str | Path) -> CompiledPolicy:
    """The policy set of a file or directory. Raises `PolicyRejected` with every mistake."""
    return compile_policy(read_sources(Path(path)))


def compile_policy(sources: Sequence[Source]) -> CompiledPolicy:
    """Policy texts → the rules to enforce. Raises `PolicyRejected` with every mistake."""
    found = DiagnosticCollector()
    policies = parse_policies(sources, found)
    if policies is None:
        raise PolicyRejected(found.sorted_diagnostics)
    checked = check_policies(policies, found)
    comparison = ScopeComparer(checked.vocabulary.schema)
    cumulative = _section(checked, policies.policies, comparison, found)
    each_release = _section(checked, policies.each_release, comparison, found)
    if found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    name = policy_digest(policies)
    texts = tuple(sources)
    return CompiledPolicy(
        texts, policies, checked, name, cumulative, each_release, found.sorted_diagnostics
    )


def _section(
    checked: CheckedPolicySet,
    policies: tuple[Policy, ...],
    comparison: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> CompiledSection:
    rules = expand(checked, policies, diagnostics)
    report_stated_order(checked, policies, comparison, diagnostics)
    arrangement = order_factors(rules, checked, comparison)
    pruned = prune(rules, arrangement)
    report_ineffective_rules(checked, policies, rules, pruned, comparison, diagnostics)
    return CompiledSection(rules, arrangement, pruned, build_index(rules, pruned))


def order_factors(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """The order of every factor of the rules."""
    scopes = {base.predicate: None for base in rules.bases}
    position = {predicate: number for number, predicate in enumerate(scopes)}
    units = sorted({base.unit for base in rules.bases})
    partitions = frozenset(map(str, checked.policies.partitions))
    return FactorOrders(
        scope_of=tuple(position[base.predicate] for base in rules.bases),
        scopes=order_predicates(list(scopes), partitions, comparison),
        unit_of=tuple(units.index(base.unit) for base in rules.bases),
        units=order_units(units, checked),
        settings=tuple(
            order_predicates([setting.predicate for setting in axis], partitions, comparison)
            for axis in rules.axes
        ),
    )
