"""Lints of compiled rules: refuted orders, scopes that never match, implied policies."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.policy.model import CustomPolicy, Extension, Policy, Setting
from dpolicy.policy.vocabulary import smallest_entities
from dpolicy.predicates.expression import Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication.implication_check import Implied, Refuted
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.pruning import PruningResult, bases_with_kept_rules
from dpolicy.rules.rule import RuleProduct
from dpolicy.rules.scope_order import ScopeComparer
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import LocatedText


def format_predicate_input(predicate_input: PredicateInput) -> str:
    """Format a counter-example on one line."""
    attributes = ", ".join(predicate_input.attributes)
    labels = "".join(
        f", {name}: {_format_label(value)}"
        for name, value in sorted(predicate_input.labels.items())
    )
    by = f", by: {predicate_input.by}" if predicate_input.by else ""
    return f"attributes: [{attributes}]{labels}, mechanism: {predicate_input.mechanism}{by}"


def _format_label(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def report_stated_order(
    checked: CheckedPolicySet,
    policies: Sequence[Policy],
    comparer: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    """Verify every `below` with the solver; report a refuted one with its counter-example."""
    customs = {p.name: p for p in policies if isinstance(p, CustomPolicy)}
    for policy in policies:
        match policy:
            case Extension(settings=settings):
                siblings = {setting.name: setting for setting in settings}
                for setting in settings:
                    _verify_below(setting, siblings, checked, comparer, diagnostics)
            case CustomPolicy():
                _verify_below(policy, customs, checked, comparer, diagnostics)


def _verify_below(
    stated: Setting | CustomPolicy,
    siblings: dict[LocatedText, Setting] | dict[LocatedText, CustomPolicy],
    checked: CheckedPolicySet,
    comparer: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    smaller = checked.predicates.get(stated.when)
    for name in stated.below:
        other = siblings.get(name)
        larger = checked.predicates.get(other.when) if other is not None else None
        if smaller is None or larger is None:
            continue
        answer = comparer.implication(smaller, larger)
        if isinstance(answer, Refuted):
            message = f"`{stated.name}` is not below `{name}`"
            example = format_predicate_input(answer.counterexample)
            help_ = f"this mechanism is in `{stated.name}` but not in `{name}`: {example}"
            diagnostics.report("P026", message, name.span, help_)
        elif not isinstance(answer, Implied):
            message = f"cannot verify that `{stated.name}` is below `{name}`"
            diagnostics.report(
                "P106", message, name.span, f"the order is not used: {answer.reason}"
            )


def report_ineffective_rules(
    checked: CheckedPolicySet,
    policies: Sequence[Policy],
    rules: RuleProduct,
    pruned: PruningResult,
    comparer: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    """Warn about scopes that never match, unusable partitions and policies without effect."""
    spans = {str(policy.name): policy.name.span for policy in policies}
    factors = {(base.name, base.predicate): (spans[base.policy], "rule") for base in rules.bases}
    factors |= {
        (setting.name, setting.predicate): (setting.span, "setting")
        for axis in rules.axes
        for setting in axis
    }
    partitions = sorted(map(str, checked.policies.partitions))
    for (name, predicate), (span, what) in factors.items():
        if _never_matches(predicate, comparer):
            diagnostics.report("P102", f"the {what} `{name}` can never match", span, None)
        for partition in partitions:
            if reads_attribute(predicate, partition):
                message = f"`{name}` reads `{partition}`, so the partition does not split it"
                help_ = "releases on different values add up for this rule (theory 6.1)"
                diagnostics.report("P104", message, span, help_)
    _report_unstated_owners(checked, rules, diagnostics)
    _report_implied_policies(policies, rules, pruned, diagnostics)


def _report_unstated_owners(
    checked: CheckedPolicySet, rules: RuleProduct, diagnostics: DiagnosticCollector
) -> None:
    """Warn about partitions without `of` that split rules for more than the shortest period."""
    vocabulary = checked.vocabulary
    owners = smallest_entities(vocabulary.units, vocabulary.entities)
    units = {name: unit for name, unit in vocabulary.units.items() if unit.entity in owners}
    for name, partition in checked.policies.partitions.items():
        if partition.of is not None or not partition.stable or len(owners) > 1:
            continue
        split = {
            base.unit
            for base in rules.bases
            if base.unit in units
            and units[base.unit].relation is not NeighbouringRelation.REPLACE
            and not reads_attribute(base.predicate, name)
        }
        shorter = [unit for unit in units if any((unit, u) in vocabulary.covered for u in split)]
        if shorter:
            (owner,) = owners
            message = f"the partition `{name}` is of `{owner}`, not of `{shorter[-1]}`"
            definition = "" if owner in units else f"add a unit `{owner}` and "
            help_ = f"{definition}state `of: {owner}` if one {owner} has one value for all time"
            diagnostics.report("P107", message, name.span, help_)


def _never_matches(predicate: Predicate, comparer: ScopeComparer) -> bool:
    if isinstance(predicate, UsesAny):
        return not predicate.attributes
    return isinstance(predicate, Expression) and comparer.never_matches(predicate)


def _report_implied_policies(
    policies: Sequence[Policy],
    rules: RuleProduct,
    pruned: PruningResult,
    diagnostics: DiagnosticCollector,
) -> None:
    has_kept: dict[str, bool] = {}
    for base, kept in zip(rules.bases, bases_with_kept_rules(rules, pruned), strict=True):
        has_kept[base.policy] = has_kept.get(base.policy, False) or kept
    for policy in policies:
        if has_kept.get(str(policy.name)) is False:
            message = f"all rules of `{policy.name}` are implied by other rules"
            diagnostics.report(
                "P103",
                message,
                policy.name.span,
                "run `dpolicy rules --all` to see which rules imply them",
            )
