"""Recorded releases obey the order of rules by which a later policy prunes.

A policy prunes a rule if every release that it accepts is charged at least as much by the witness.
A recorded release need not be one that the policy would accept: it may lack a label that the policy
requires, or it may not be additive. The witness is then charged what the pruned rule would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from tests.properties.policy_replay import without_pruning

from dpolicy import DecisionPoint
from dpolicy.balances import enforced_policy
from dpolicy.decisions import resolution
from dpolicy.errors import PolicyConflicts
from dpolicy.pdp.policy_changes.conflicts import find_all_conflicts
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.releases.meaning import LabelValue
from dpolicy.releases.release_schema import Label
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

WEEK = {"from": "2026-10-26", "to": "2026-11-01"}
UNITS = "user: {}, user-week: {period: week}, user-day: {period: day}"


def policy(rules: str, units: str = "user: {}", labels: str = "", more: str = "") -> CompiledPolicy:
    """Compile a policy with the rules, one a line."""
    text = f"""
dpolicy: 1
accounting: {{delta: 1e-7, uncovered: allow{more}}}
units: {{{units}}}
schema: {{attributes: {{zip: {{risk: low}}, age: {{risk: low}}}}, labels: {{{labels}}}}}
policies:
{rules}
"""
    return compile_policy([Source("policy.yaml", text)])


def rule(name: str, when: str, rho: str, unit: str = "user") -> str:
    return (
        f"  - {{name: {name}, kind: custom, when: '{when}', unit: {unit}, budget: {{rho: {rho}}}}}"
    )


def gaussian(release: str, sigma: object = 1, **more: Any) -> dict[str, Any]:
    """Return a release of ρ 1/(2σ²)."""
    mechanism = {"mechanism": {"kind": "gaussian", "sigma": sigma}, "attributes": ["zip"], **more}
    return {"release": release, "mechanisms": [mechanism]}


def pruned_names(compiled: CompiledPolicy) -> set[str]:
    return {rule.name for rule, witness in compiled.all_rules if witness is not None}


def exceeded_rules(point: DecisionPoint, candidate: CompiledPolicy) -> dict[str, float | None]:
    """Return the conflicts of a candidate: the rules that past releases exceed, with their ρ."""
    conflicts = point.read_state(lambda state: find_all_conflicts(state, candidate))
    return {c.name: c.spent["rho"] for c in conflicts if isinstance(c, RuleStatus)}


def days_and_users(rho: str) -> str:
    return "\n".join((rule("days", "always", rho, "user-day"), rule("users", "always", rho)))


def test_a_release_that_is_not_additive_is_charged_to_the_rule_for_the_larger_unit() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(days_and_users("10"), UNITS))
    assert point.submit(gaussian("w", unit="user-week", time=WEEK)).allowed
    later = policy(days_and_users("1"), UNITS, more=", require: additive")
    assert pruned_names(later) == {"days"}
    assert exceeded_rules(point, later) == {"users": 2.0}
    assert exceeded_rules(point, without_pruning(later)) == {"days": 2.0, "users": 2.0}


def test_a_reservation_that_is_not_additive_is_a_conflict_too() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(days_and_users("10"), UNITS))
    assert point.reserve(gaussian("w", unit="user-week", time=WEEK)).allowed
    with pytest.raises(PolicyConflicts):
        point.apply(policy(days_and_users("1"), UNITS, more=", require: additive"))


STAGED = "\n".join((rule("staged", "has(labels.stage)", "0.5"), rule("all", "always", "0.5")))


@pytest.mark.parametrize("later", ("default: a", "required: true"))
def test_a_release_without_a_label_that_every_release_has_now_is_charged(later: str) -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule("all", "always", "1"), labels="stage: {values: [a, b]}"))
    assert point.submit(gaussian("r")).allowed
    candidate = policy(STAGED, labels=f"stage: {{values: [a, b], {later}}}")
    assert pruned_names(candidate) == {"all"}
    point.apply(candidate)
    (staged,) = [s for s in point.budgets() if s.rule.name == "staged"]
    assert staged.spent["rho"] == 0.5
    assert not point.submit(gaussian("s", labels={"stage": "a"})).allowed


def test_a_rule_that_no_new_release_matches_still_counts_past_ones() -> None:
    """The rule on missing labels is pruned by an unrelated rule, because it matches nothing now."""
    point = DecisionPoint(":memory:")
    point.apply(policy(rule("all", "always", "1"), labels="stage: {values: [a, b]}"))
    assert point.submit(gaussian("r", attributes=["age"])).allowed
    rules = (rule("zip", '"zip" in attributes', "0.1"), rule("none", "!has(labels.stage)", "0.1"))
    candidate = policy("\n".join(rules), labels="stage: {values: [a, b], default: a}")
    assert exceeded_rules(point, candidate)


# Random policy changes: if a rule is exceeded, a kept rule is exceeded.

SEEDS = range(300)
LABELS = ("", ", default: a", ", required: true")
PREDICATES = (
    "always",
    "has(labels.stage)",
    "!has(labels.stage)",
    'has(labels.stage) && labels.stage == "a"',
    '!has(labels.stage) || labels.stage == "b"',
    '"zip" in attributes',
    '!("age" in attributes)',
)


def random_policy(
    random: Random, label: str, rhos: tuple[str, ...], more: tuple[str, ...] = ("",)
) -> CompiledPolicy:
    names = [f"r{number}" for number in range(random.randint(1, 4))]
    units = ("user", "user-week", "user-day")
    rules = [
        rule(n, random.choice(PREDICATES), random.choice(rhos), random.choice(units)) for n in names
    ]
    relation = random.choice((", relation: change", "", ""))
    labels = f"stage: {{values: [a, b]{label}}}"
    return policy("\n".join(rules), UNITS, labels, relation + random.choice(more))


def random_release(random: Random, name: str, label: str) -> dict[str, Any]:
    stated = {"labels": {"stage": random.choice("ab")}} if random.random() < 0.3 or label else {}
    return gaussian(
        name,
        sigma=random.choice((1, 2)),
        attributes=random.choice((["zip"], ["age"], ["zip", "age"])),
        unit=random.choice(("user", "user-week", "user-day")),
        relation=random.choice(("add-remove", "change")),
        additive=random.choice((True, False)),
        time=WEEK,
        **stated,
    )


def find_unseen_excess(seeds: range) -> list[int]:
    """Return the seeds where an exceeded rule is pruned and no kept rule is exceeded."""
    wrong = []
    for seed in seeds:
        random = Random(seed)
        point = DecisionPoint(":memory:")
        label = random.choice(LABELS)
        point.apply(random_policy(random, label, ("100000",)))
        for number in range(random.randint(1, 2)):
            point.import_past(random_release(random, f"r{number}", label), because="past")
        additive = (", require: additive", "")
        candidate = random_policy(random, random.choice(LABELS), ("0.4", "1"), additive)
        if exceeded_rules(point, without_pruning(candidate)) and not exceeded_rules(
            point, candidate
        ):
            wrong.append(seed)
    return wrong


def test_no_pruned_rule_is_exceeded_if_no_kept_rule_is() -> None:
    assert find_unseen_excess(SEEDS) == []


def known_by_value(
    recorded: Mapping[str, LabelValue], labels: Mapping[str, Label]
) -> tuple[dict[str, str | tuple[str, ...]], frozenset[str]]:
    """Read a label that was left out as missing, whatever the policy requires."""
    readable = {name: value for name, value in recorded.items() if value is not None}
    return readable, frozenset(labels) - frozenset(recorded)


def without_order(*parts: Any) -> GroupContext:
    """Return a context that does not know that the policy requires additive mechanisms."""
    return GroupContext(*parts[:5])


def test_the_search_finds_labels_that_are_read_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "known_labels", known_by_value)
    assert find_unseen_excess(SEEDS)


def test_the_search_finds_mechanisms_that_are_not_additive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enforced_policy, "GroupContext", without_order)
    assert find_unseen_excess(SEEDS)
