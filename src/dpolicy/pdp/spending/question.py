"""Question: the scope, unit, place, date and authors for which spending is computed.

A question is a rule that never denies: it has a scope and a unit of the active policy, and its
blocks are those that a rule with this scope and unit has (theory 6.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.balances.granularities import scope_granularity
from dpolicy.balances.partition_space import Granularity
from dpolicy.errors import InvalidValue, OperationRejected
from dpolicy.policy.scope_text import parse_scope
from dpolicy.predicates.expression import Predicate
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.cost_report import DEFAULT_DELTA
from dpolicy.releases.authors import require_names, require_texts
from dpolicy.releases.regions import Region
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.yaml_reader import MAX_DIGITS, MAX_EXPONENT


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a question: all predicates together. `rule` is the rule whose scope it is.

    `kept_number` is its number if it is a kept cumulative rule for the unit of the question.
    """

    predicates: tuple[Predicate, ...]
    when: str | None = None
    rule: Rule | None = None
    kept_number: int | None = None


@dataclass(frozen=True, slots=True)
class SpendingQuestion:
    """A question about spending; `parse_question` makes it from texts.

    `within` is the region to look at, None for all places. `since` is the ordinal of the first day
    of the releases, `authors` are the authors that count; None for all. ε is computed at `delta`.
    `asked_dimensions` are the names in the stated place. With `listed_author`, the answer lists
    only the releases and the total of this author; the spending is that of all `authors`.
    """

    scope: Scope
    unit: str
    granularity: Granularity
    within: Region | None
    since: int | None
    authors: frozenset[str] | None
    delta: Fraction
    asked_dimensions: frozenset[str] = frozenset()
    listed_author: str | None = None


def parse_question(
    enforced: EnforcedPolicy,
    when: str | None = None,
    rule: str | None = None,
    unit: str | None = None,
    at: Mapping[str, str] | None = None,
    since: date | str | None = None,
    by: Sequence[str] | str | None = None,
    delta: Fraction | float | str | None = None,
) -> SpendingQuestion:
    """Return the question that texts state under a policy.

    Raise `PolicyRejected` for an expression with errors, `OperationRejected` for an unknown name
    and `InvalidValue` for a value that is no date, no δ or no text.
    """
    require_texts(**{n: v for n, v in (("when", when), ("rule", rule), ("unit", unit)) if v})
    require_names("by", () if by is None else by)
    if when is not None and rule is not None:
        raise OperationRejected("a question has a scope: give `when` or `rule`, not both")
    policy = enforced.policy
    scope, unit = _parse_scope(policy, when, rule, unit)
    names = frozenset([by] if isinstance(by, str) else by or ())
    return SpendingQuestion(
        scope,
        unit,
        scope_granularity(policy, policy.units[unit], scope.predicates),
        enforced.space.parse_location(at) if at else None,
        _parse_since(since),
        names or None,
        _default_delta(policy, scope.rule) if delta is None else _parse_delta(delta),
        frozenset(at or ()),
    )


def ask_about_rule(enforced: EnforcedPolicy, rule: Rule) -> SpendingQuestion:
    """Return the question about the scope and unit of one rule."""
    policy = enforced.policy
    scope = _rule_scope(policy, rule, rule.unit)
    granularity = scope_granularity(policy, policy.units[rule.unit], scope.predicates)
    delta = _default_delta(policy, rule)
    return SpendingQuestion(scope, rule.unit, granularity, None, None, None, delta)


def _parse_scope(
    policy: CompiledPolicy, when: str | None, rule: str | None, unit: str | None
) -> tuple[Scope, str]:
    if unit is not None and unit not in policy.units:
        hint = suggest(unit, policy.units) or f"units of the policy: {', '.join(policy.units)}"
        raise OperationRejected(f"there is no unit `{unit}`; {hint}", "unknown-unit")
    if rule is not None:
        named = _find_rule(policy, rule, unit)
        return _rule_scope(policy, named, unit or named.unit), unit or named.unit
    unit = unit or _largest_unit(policy, list(policy.units), "the policy")
    predicates = () if when is None else (parse_scope(when, policy.schema),)
    return Scope(predicates, when), unit


def _largest_unit(policy: CompiledPolicy, names: Sequence[str], owner: str) -> str:
    """Return the unit of `names` that contains all others of them."""
    covered, units = policy.vocabulary.covered, list(dict.fromkeys(names))
    for unit in units:
        if all(other == unit or (other, unit) in covered for other in units):
            return unit
    message = f"`unit` is required: {owner} has several, and none contains all others"
    raise OperationRejected(f"{message}: {', '.join(units)}", "unit-required")


def _find_rule(policy: CompiledPolicy, name: str, unit: str | None) -> Rule:
    """Return the rule with a name; of several units, the one for `unit` or for the largest."""
    candidates = [rule for rule, _ in policy.all_rules if rule.name == name]
    if not candidates:
        names = {rule.name for rule, _ in policy.all_rules}
        hint = suggest(name, names) or "`dpolicy rules --all` lists all rules"
        raise OperationRejected(f"there is no rule `{name}`; {hint}", "unknown-rule")
    unit = unit or _largest_unit(policy, [rule.unit for rule in candidates], f"the rule `{name}`")
    return next((rule for rule in candidates if rule.unit == unit), candidates[0])


def _rule_scope(policy: CompiledPolicy, rule: Rule, unit: str) -> Scope:
    is_enforced = not rule.each_release and rule.unit == unit
    is_kept = is_enforced and bool(policy.cumulative.pruning.kept[rule.number])
    return Scope(rule.predicates, None, rule, rule.number if is_kept else None)


def _default_delta(policy: CompiledPolicy, rule: Rule | None) -> Fraction:
    """Return the δ of the rule, else of the policy, else the smallest of any rule, else 1e-7."""
    if rule is not None and isinstance(rule.budget, EpsilonDelta):
        return rule.budget.delta
    if policy.accounting.delta is not None:
        return policy.accounting.delta
    budgets = (budget for section in policy.sections for budget in section.rules.budgets)
    stated = (budget.delta for budget in budgets if isinstance(budget, EpsilonDelta))
    return min((delta for delta in stated if delta), default=DEFAULT_DELTA)


def _parse_since(since: date | str | None) -> int | None:
    if since is None:
        return None
    try:
        day = date.fromisoformat(since) if isinstance(since, str) else since
        return date(day.year, day.month, day.day).toordinal()
    except (AttributeError, TypeError, ValueError):
        message = f"`since` is `{since!s:.40}`; help: give a date such as 2026-10-28"
        raise InvalidValue("P007", message) from None


def _parse_delta(delta: Fraction | float | str) -> Fraction:
    written = repr(delta) if isinstance(delta, float) else delta
    try:
        exact = _read_decimal(written) if isinstance(written, str) else Fraction(written)
    except (ArithmeticError, TypeError, ValueError):
        exact = Fraction(-1)
    if not 0 <= exact < 1:
        message = f"`delta` is `{delta!s:.40}`; help: give a number from 0 to below 1"
        raise InvalidValue("P007", message)
    return exact


def _read_decimal(text: str) -> Fraction:
    """Return an exact number. Raise `ValueError` if its exact form would be too long."""
    decimal = Decimal(text if len(text) <= MAX_DIGITS else "NaN")
    if not decimal.is_finite() or abs(int(decimal.as_tuple().exponent)) > MAX_EXPONENT:
        raise ValueError(text[:MAX_DIGITS])
    return Fraction(decimal)
