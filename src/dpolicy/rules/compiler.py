"""Policy text → compiled policy: the pipeline, one line per stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dpolicy.errors import PolicyRejected
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS, AccountingDefaults
from dpolicy.policy.checker import CheckedPolicySet, check_policies
from dpolicy.policy.digest import policy_digest
from dpolicy.policy.model import Accounting, Partition, Policy, PolicySet
from dpolicy.policy.parser import parse_policies, read_sources
from dpolicy.policy.vocabulary import Vocabulary
from dpolicy.privacy.budget import format_budget
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.rules.expansion import expand
from dpolicy.rules.lints import report_ineffective_rules, report_stated_order
from dpolicy.rules.pruning import FactorOrders, PruningResult, prune
from dpolicy.rules.rule import Rule, RuleProduct
from dpolicy.rules.rule_index import RuleIndex, build_index
from dpolicy.rules.scope_order import ScopeComparer, order_predicates, order_units
from dpolicy.text.diagnostics import Diagnostic, DiagnosticCollector
from dpolicy.text.source_files import to_path
from dpolicy.text.spans import LocatedText
from dpolicy.text.summaries import html_line, html_table, one_line
from dpolicy.text.yaml_reader import Source


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSection:
    """Rules of one section of a policy set, the order of their factors, and the kept rules."""

    rules: RuleProduct
    factor_orders: FactorOrders
    pruning: PruningResult
    index: RuleIndex

    def __repr__(self) -> str:
        return one_line(self, f"{int(self.pruning.kept.sum())} of {len(self.rules)} rules kept")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def implied_by(self, rule: Rule) -> Rule | None:
        """Return the witness of a pruned rule, or None for a kept rule."""
        witness = int(self.pruning.implied_by[rule.number])
        return None if witness == rule.number else self.rules[witness]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy set without errors, its rules, and its warnings."""

    sources: tuple[Source, ...]
    policy_set: PolicySet
    checked_policy_set: CheckedPolicySet
    digest: str
    cumulative: CompiledSection
    each_release: CompiledSection
    warnings: tuple[Diagnostic, ...]

    def __repr__(self) -> str:
        counts = f"{self.kept_count} of {self.rule_count} rules kept"
        return one_line(self, str(self.policy_set.name or ""), counts, f"{self.digest[:19]}…")

    def _repr_html_(self) -> str:
        rows = [(rule.name, rule.unit, format_budget(rule.budget)) for rule in self.rules]
        return html_table(repr(self)[1:-1], ("rule", "unit", "budget"), rows)

    @property
    def sections(self) -> tuple[CompiledSection, CompiledSection]:
        """The cumulative section, then the per-release section."""
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
        """Number of rules before pruning, |R| in the paper."""
        return sum(len(section.rules) for section in self.sections)

    @property
    def kept_count(self) -> int:
        """Number of rules after pruning."""
        return sum(int(section.pruning.kept.sum()) for section in self.sections)

    @property
    def all_rules(self) -> Iterator[tuple[Rule, Rule | None]]:
        """Every rule, with its witness if it is pruned."""
        return chain.from_iterable(
            ((rule, section.implied_by(rule)) for rule in section.rules)
            for section in self.sections
        )

    @property
    def rules(self) -> list[Rule]:
        """Kept rules of both sections."""
        return [
            section.rules[int(number)]
            for section in self.sections
            for number in section.pruning.kept.nonzero()[0]
        ]


def load_policy(path: str | Path) -> CompiledPolicy:
    """Compile the policy set of a file or directory.

    Raise `PolicyRejected` with all diagnostics if there is an error.
    """
    return compile_policy(read_sources(to_path(path)))


def compile_policy(
    sources: Sequence[Source],
    defaults: AccountingDefaults = NEWEST_DEFAULTS,
    tolerated: Collection[str] = frozenset(),
) -> CompiledPolicy:
    """Compile policy texts. Raise `PolicyRejected` with all diagnostics if there is an error.

    `defaults` complete texts that state nothing else. An error with a `tolerated` code is only a
    warning.
    """
    diagnostics = DiagnosticCollector()
    policy_set = parse_policies(sources, diagnostics, defaults)
    if policy_set is None:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    checked = check_policies(policy_set, diagnostics)
    comparer = ScopeComparer(checked.vocabulary.schema)
    cumulative = _compile_section(checked, policy_set.policies, comparer, diagnostics)
    each_release = _compile_section(checked, policy_set.each_release, comparer, diagnostics)
    if any(error.code not in tolerated for error in diagnostics.errors):
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return CompiledPolicy(
        sources=tuple(sources),
        policy_set=policy_set,
        checked_policy_set=checked,
        digest=policy_digest(policy_set),
        cumulative=cumulative,
        each_release=each_release,
        warnings=diagnostics.sorted_diagnostics,
    )


def _compile_section(
    checked: CheckedPolicySet,
    policies: tuple[Policy, ...],
    comparer: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> CompiledSection:
    rules = expand(checked, policies, diagnostics)
    report_stated_order(checked, policies, comparer, diagnostics)
    orders = order_factors(rules, checked, comparer)
    pruning = prune(rules, orders)
    report_ineffective_rules(checked, policies, rules, pruning, comparer, diagnostics)
    return CompiledSection(rules, orders, pruning, build_index(rules, pruning))


def order_factors(
    rules: RuleProduct, checked: CheckedPolicySet, comparer: ScopeComparer
) -> FactorOrders:
    """Order each factor of the rules: base scopes, units, and the settings of each extension."""
    scopes = {base.predicate: None for base in rules.bases}
    position = {predicate: number for number, predicate in enumerate(scopes)}
    units = sorted({base.unit for base in rules.bases})
    partitions = frozenset(map(str, checked.policies.partitions))
    return FactorOrders(
        scope_of_base=tuple(position[base.predicate] for base in rules.bases),
        scopes=order_predicates(list(scopes), partitions, comparer),
        unit_of_base=tuple(units.index(base.unit) for base in rules.bases),
        units=order_units(units, checked),
        settings=tuple(
            order_predicates([setting.predicate for setting in axis], partitions, comparer)
            for axis in rules.axes
        ),
    )
