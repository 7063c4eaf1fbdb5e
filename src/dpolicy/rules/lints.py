"""Rules and their order → what the author of a policy should know: false orders, idle rules."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.policy.model import CustomPolicy, Extension, Policy, Setting
from dpolicy.predicates.expression import Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication.implication_check import Implied, Refuted
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.pruning import PruningResult, bases_with_kept_rules
from dpolicy.rules.rule import RuleProduct
from dpolicy.rules.scope_order import ScopeComparer
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import LocatedText


def format_predicate_input(facts: PredicateInput) -> str:
    """A mechanism in one line, as a counter-example is shown."""
    labels = "".join(f", {name}: {_shown(value)}" for name, value in sorted(facts.labels.items()))
    by = f", by: {facts.by}" if facts.by else ""
    return f"attributes: [{', '.join(facts.attributes)}]{labels}, mechanism: {facts.mechanism}{by}"


def _shown(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def report_stated_order(
    checked: CheckedPolicySet,
    policies: Sequence[Policy],
    comparison: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    """Verify every `below` with the solver; a false one is an error with its counter-example."""
    customs = {p.name: p for p in policies if isinstance(p, CustomPolicy)}
    for policy in policies:
        match policy:
            case Extension(settings=settings):
                named = {setting.name: setting for setting in settings}
                for setting in settings:
                    _verify(setting, named, checked, comparison, diagnostics)
            case CustomPolicy():
                _verify(policy, customs, checked, comparison, diagnostics)


def _verify(
    stated: Setting | CustomPolicy,
    siblings: dict[LocatedText, Setting] | dict[LocatedText, CustomPolicy],
    checked: CheckedPolicySet,
    comparison: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    smaller = checked.predicates.get(stated.when)
    for word in stated.below:
        other = siblings.get(word)
        larger = checked.predicates.get(other.when) if other is not None else None
        if smaller is None or larger is None:
            continue
        answer = comparison.implication(smaller, larger)
        if isinstance(answer, Refuted):
            shown = f"`{stated.name}` does not lie below `{word}`"
            example = format_predicate_input(answer.counterexample)
            help_ = f"this mechanism is in `{stated.name}` but not in `{word}`: {example}"
            diagnostics.report("P026", shown, word.span, help_)
        elif not isinstance(answer, Implied):
            shown = f"that `{stated.name}` lies below `{word}` could not be verified"
            diagnostics.report("P106", shown, word.span, f"the order is not used: {answer.reason}")


def report_ineffective_rules(
    checked: CheckedPolicySet,
    policies: Sequence[Policy],
    rules: RuleProduct,
    pruned: PruningResult,
    comparison: ScopeComparer,
    diagnostics: DiagnosticCollector,
) -> None:
    """Warn of scopes that never match, partitions that cannot be used, and idle policies."""
    spans = {str(policy.name): policy.name.span for policy in policies}
    factors = {(base.name, base.predicate): (spans[base.policy], "rule") for base in rules.bases}
    factors |= {
        (setting.name, setting.predicate): (setting.span, "setting")
        for axis in rules.axes
        for setting in axis
    }
    partitions = sorted(map(str, checked.policies.partitions))
    for (name, predicate), (span, what) in factors.items():
        if _never_matches(predicate, comparison):
            diagnostics.report("P102", f"the {what} `{name}` can never match", span, None)
        for partition in partitions:
            if reads_attribute(predicate, partition):
                shown = f"`{name}` is about `{partition}`, so it cannot be split by it"
                help_ = "releases about different values add up for this rule (theory 6.1)"
                diagnostics.report("P104", shown, span, help_)
    _report_idle(policies, rules, pruned, diagnostics)


def _never_matches(predicate: Predicate, comparison: ScopeComparer) -> bool:
    if isinstance(predicate, UsesAny):
        return not predicate.attributes
    return isinstance(predicate, Expression) and comparison.never_matches(predicate)


def _report_idle(
    policies: Sequence[Policy],
    rules: RuleProduct,
    pruned: PruningResult,
    diagnostics: DiagnosticCollector,
) -> None:
    alive: dict[str, bool] = {}
    for base, kept in zip(rules.bases, bases_with_kept_rules(rules, pruned), strict=True):
        alive[base.policy] = alive.get(base.policy, False) or kept
    for policy in policies:
        if alive.get(str(policy.name)) is False:
            shown = f"all rules of `{policy.name}` are implied by others"
            diagnostics.report(
                "P103", shown, policy.name.span, "`dpolicy rules --all` says by which"
            )
