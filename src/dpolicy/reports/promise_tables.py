"""Tables of promises: the budgets of a policy grouped by policy, unit and limit, and their use.

The used share and the used amounts are those of `dpolicy budgets`: as the filter of each rule
counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dpolicy.pdp.rule_status import RuleStatus, used_share
from dpolicy.policy.model import ALWAYS, AttributePolicy, CustomPolicy, PolicySet
from dpolicy.privacy.budget import Budget, budget_to_json
from dpolicy.privacy.risk.attacker_risk import risk_of_budget
from dpolicy.releases.texts.amount_text import budget_text, location_text, loss_text
from dpolicy.reports.document import BELIEF_TITLE, Cell, CellKind, DocumentTable, TableColumn
from dpolicy.reports.ledger_facts import LedgerFacts
from dpolicy.rules.rule import Rule

#: Number of rules in the table of the most used ones.
MAX_RULES = 12

#: Longest list of attributes or categories in a cell.
MAX_LISTED_LENGTH = 90

#: Rules with the same policy, settings, unit and budget.
_Group = tuple[str, str, str, Budget]


def promise_table(facts: LedgerFacts) -> DocumentTable:
    """Return the promises of the policy, one line for each distinct budget of a policy and unit."""
    columns = (
        TableColumn("Policy", is_short=True),
        TableColumn("Applies to"),
        TableColumn("For each", is_short=True),
        TableColumn("Limit", is_short=True),
        TableColumn(BELIEF_TITLE, CellKind.CHANCE),
        TableColumn("Largest use", CellKind.SHARE),
    )
    policies = facts.policy.policy_set
    rows: list[tuple[Cell, ...]] = []
    for (policy, settings, unit, budget), members in _groups(facts).items():
        name = f"{policy} × {settings}" if settings else policy
        words = _scope_words(policies, policy, [_rule(member) for member in members])
        limit, risk = budget_text(budget_to_json(budget)), risk_of_budget(budget)
        rows.append((name, words, unit, limit, risk.posterior(0.5), _largest(members)))
    return DocumentTable(columns, tuple(rows))


def public_promise_table(facts: LedgerFacts) -> DocumentTable:
    """Return the promises without names of policies and without predicates, which name authors."""
    columns = (
        TableColumn("Applies to"),
        TableColumn("For each", is_short=True),
        TableColumn("Limit", is_short=True),
        TableColumn(BELIEF_TITLE, CellKind.CHANCE),
    )
    policies = facts.policy.policy_set
    rows: dict[tuple[Cell, ...], None] = {}
    for (policy, settings, unit, budget), members in _groups(facts).items():
        rules = [_rule(member) for member in members]
        words = _scope_words(policies, policy, rules, is_public=True)
        part = "a part of " if settings else ""
        limit, risk = budget_text(budget_to_json(budget)), risk_of_budget(budget)
        rows[part + words, unit, limit, risk.posterior(0.5)] = None
    return DocumentTable(columns, tuple(rows))


def _groups(facts: LedgerFacts) -> dict[_Group, list[RuleStatus | Rule]]:
    """Return the enforced rules by policy, settings, unit and budget, in policy order."""
    groups: dict[_Group, list[RuleStatus | Rule]] = {}
    for status in sorted(facts.statuses, key=lambda status: status.rule.number):
        groups.setdefault(_group(status.rule), []).append(status)
    for rule in facts.policy.rules:
        if rule.each_release:
            groups.setdefault(_group(rule), []).append(rule)
    return groups


def _rule(member: RuleStatus | Rule) -> Rule:
    return member.rule if isinstance(member, RuleStatus) else member


def _scope_words(
    policies: PolicySet, name: str, rules: Sequence[Rule], *, is_public: bool = False
) -> str:
    """Return in words what the rules of one policy apply to."""
    section = policies.each_release if rules[0].each_release else policies.policies
    policy = next(policy for policy in section if str(policy.name) == name)
    each = ", each alone" if rules[0].each_release else ""
    match policy:
        case CustomPolicy(when=when) if when == ALWAYS:
            return f"all releases{each}"
        case CustomPolicy(when=when):
            return f"a part of the releases{each}" if is_public else f"releases with {when}{each}"
        case AttributePolicy():
            return _subject_words(rules, each, "attribute", "attributes")
        case _:
            return _subject_words(rules, each, "category", "categories")


def _subject_words(rules: Sequence[Rule], each: str, word: str, plural: str) -> str:
    """Return the subjects of rules: `per-category[health, weak]` → `health (weak)`.

    Rules with the same budget share a line; the text states that each has its own limit.
    """
    names = []
    for rule in rules:
        subject = rule.base.name.partition("[")[2].removesuffix("]")
        name, _, level = subject.partition(", ")
        names.append(f"{name} ({level})" if level else name)
    subjects = list(dict.fromkeys(names))
    if len(subjects) == 1:
        return f"releases that use {subjects[0]}{each}"
    listed = ", ".join(subjects)
    if len(listed) > MAX_LISTED_LENGTH:
        listed = f"{len(subjects)} {plural}"
    return f"releases that use one of {listed}{each}; a separate limit for each {word}"


def use_table(statuses: Iterable[RuleStatus], empty: str = "None.") -> DocumentTable:
    """Return rules with their limit and what was used of it, as `dpolicy budgets` prints them."""
    columns = (
        TableColumn("Rule"),
        TableColumn("For each", is_short=True),
        TableColumn("Most used at", is_short=True),
        TableColumn("Used", is_short=True),
        TableColumn("Limit", is_short=True),
        TableColumn("Share", CellKind.SHARE, "∞"),
    )
    rows: list[tuple[Cell, ...]] = []
    for status in statuses:
        place = location_text(status.location) or "everywhere"
        used, limit = loss_text(status.spent, status.budget), budget_text(status.budget)
        rows.append((status.name, status.unit, place, used, limit, _share(used_share(status))))
    return DocumentTable(columns, tuple(rows), empty)


def conflict_table(facts: LedgerFacts) -> DocumentTable:
    """Return the rules that recorded releases exceed, with the releases that spent most."""
    columns = (
        TableColumn("Rule"),
        TableColumn("For each", is_short=True),
        TableColumn("Used", is_short=True),
        TableColumn("Limit", is_short=True),
        TableColumn("Largest spenders"),
    )
    rows: list[tuple[Cell, ...]] = []
    for status in facts.exceeded_rules:
        used, limit = loss_text(status.spent, status.budget), budget_text(status.budget)
        rows.append((status.name, status.unit, used, limit, ", ".join(status.spenders)))
    return DocumentTable(columns, tuple(rows), "No rule is exceeded.")


def _group(rule: Rule) -> _Group:
    settings = " × ".join(setting.name for setting in rule.settings)
    return rule.base.policy, settings, rule.unit, rule.budget


def _largest(members: Iterable[RuleStatus | Rule]) -> float | None:
    """Return the largest used share; None for per-release rules, which have no balance."""
    shares = [used_share(member) for member in members if isinstance(member, RuleStatus)]
    return max((share for s in shares if (share := _share(s)) is not None), default=None)


def _share(share: Fraction | None) -> float | None:
    return None if share is None else float(share)
