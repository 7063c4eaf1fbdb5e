"""Rules and their order → what the author of a policy should know: false orders, idle rules."""

from __future__ import annotations

from collections.abc import Sequence

from dpolicy.language.checker import Checked
from dpolicy.language.diagnostics import Findings
from dpolicy.language.model import CustomPolicy, Extension, Policy, Setting
from dpolicy.language.source import Word
from dpolicy.predicates.expression import Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication import Implied, Refuted
from dpolicy.releases.labels import Facts
from dpolicy.rules.order import Comparison
from dpolicy.rules.pruning import Pruned, bases_alive
from dpolicy.rules.rule import Rules


def describe_facts(facts: Facts) -> str:
    """A mechanism in one line, as a counter-example is shown."""
    labels = "".join(f", {name}: {_shown(value)}" for name, value in sorted(facts.labels.items()))
    by = f", by: {facts.by}" if facts.by else ""
    return f"attributes: [{', '.join(facts.attributes)}]{labels}, mechanism: {facts.mechanism}{by}"


def _shown(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def report_stated_order(
    checked: Checked, policies: Sequence[Policy], comparison: Comparison, found: Findings
) -> None:
    """Verify every `below` with the solver; a false one is an error with its counter-example."""
    customs = {p.name: p for p in policies if isinstance(p, CustomPolicy)}
    for policy in policies:
        match policy:
            case Extension(settings=settings):
                named = {setting.name: setting for setting in settings}
                for setting in settings:
                    _verify(setting, named, checked, comparison, found)
            case CustomPolicy():
                _verify(policy, customs, checked, comparison, found)


def _verify(
    stated: Setting | CustomPolicy,
    others: dict[Word, Setting] | dict[Word, CustomPolicy],
    checked: Checked,
    comparison: Comparison,
    found: Findings,
) -> None:
    smaller = checked.predicates.get(stated.when)
    for word in stated.below:
        other = others.get(word)
        larger = checked.predicates.get(other.when) if other is not None else None
        if smaller is None or larger is None:
            continue
        answer = comparison.answer(smaller, larger)
        if isinstance(answer, Refuted):
            shown = f"`{stated.name}` does not lie below `{word}`"
            example = describe_facts(answer.counterexample)
            help_ = f"this mechanism is in `{stated.name}` but not in `{word}`: {example}"
            found("P026", shown, word.span, help_)
        elif not isinstance(answer, Implied):
            shown = f"that `{stated.name}` lies below `{word}` could not be verified"
            found("P106", shown, word.span, f"the order is not used: {answer.reason}")


def report_rules(
    checked: Checked,
    policies: Sequence[Policy],
    rules: Rules,
    pruned: Pruned,
    comparison: Comparison,
    found: Findings,
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
            found("P102", f"the {what} `{name}` can never match", span, None)
        for partition in partitions:
            if reads_attribute(predicate, partition):
                shown = f"`{name}` is about `{partition}`, so it cannot be split by it"
                help_ = "releases about different values add up for this rule (theory 6.1)"
                found("P104", shown, span, help_)
    _report_idle(policies, rules, pruned, found)


def _never_matches(predicate: Predicate, comparison: Comparison) -> bool:
    if isinstance(predicate, UsesAny):
        return not predicate.attributes
    return isinstance(predicate, Expression) and comparison.never_matches(predicate)


def _report_idle(policies: Sequence[Policy], rules: Rules, pruned: Pruned, found: Findings) -> None:
    alive: dict[str, bool] = {}
    for base, kept in zip(rules.bases, bases_alive(rules, pruned), strict=True):
        alive[base.policy] = alive.get(base.policy, False) or kept
    for policy in policies:
        if alive.get(str(policy.name)) is False:
            shown = f"all rules of `{policy.name}` are implied by others"
            found("P103", shown, policy.name.span, "`dpolicy rules --all` says by which")
