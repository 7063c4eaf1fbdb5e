"""Pruning changes no decision of per-release rules that loss distributions decide; fixed seeds.

Budgets differ in ε and in δ, some policies keep no part of δ for leaks, and the releases lie around
the border between thresholds, loss distributions and denial.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

from tests.properties.policy_replay import compile_dict, without_pruning

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.decide import decide
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.loss_distribution import unit_runs
from dpolicy.privacy.thresholds import BudgetBound, implies_bound
from dpolicy.releases.body import release_from_body
from dpolicy.rules import pruning
from dpolicy.rules.compiler import CompiledPolicy

POLICIES, RELEASES = 150, 6

SCOPES = ('"a" in attributes && "b" in attributes', '"a" in attributes', "always")
UNITS = {"user": {}, "user-day": {"period": "day"}, "user-month": {"period": "month"}}
RELATIONS = ({"relation": "change"}, {"relation": "add-remove", "require": "additive"})
EPSILONS, DELTAS = (0.2, 0.3, 0.5, 1, 1.2, 2), (0, 1e-9, 1e-6, 1e-5, 1e-5, 1e-4)


def random_policy(source: Random) -> dict[str, Any]:
    """Return a policy of two to four per-release rules; most keep no leaks."""
    accounting: dict[str, Any] = {
        "delta": 1e-5,
        "profile": source.choice(("classic", "anchored")),
        **source.choice(RELATIONS),
    }
    if source.random() < 0.6:
        accounting["leaks"] = 0
    rules = []
    for number in range(source.randint(2, 4)):
        budget: dict[str, Any] = {
            "epsilon": source.choice(EPSILONS),
            "delta": source.choice(DELTAS),
        }
        if source.random() < 0.1:
            budget = {"rho": source.choice((0.01, 0.1))}
        unit = source.choice(tuple(UNITS))
        rule = _rule(f"e{number}", source.choice(SCOPES), budget, unit)
        rules.append({**rule, "profile": "static"} if source.random() < 0.5 else rule)
    if source.random() < 0.4:  # thresholds of a small ε imply those of a small δ, if none may leak
        rules[0] = _rule("e0", "always", {"epsilon": 0.3, "delta": 1e-5})
        rules[1] = _rule("e1", source.choice(SCOPES), {"epsilon": 2, "delta": 1e-9})
    everything = {"name": "all", "kind": "custom", "when": "always", "unit": "user"}
    return {
        "dpolicy": 1,
        "accounting": accounting,
        "units": UNITS,
        "schema": {"attributes": {"a": {"risk": "low"}, "b": {"risk": "low"}}},
        "policies": [{**everything, "budget": "unlimited"}],
        "each-release": rules,
    }


def _rule(name: str, when: str, budget: dict[str, Any], unit: str = "user") -> dict[str, Any]:
    return {"name": name, "kind": "custom", "when": when, "unit": unit, "budget": budget}


def random_release(source: Random) -> dict[str, Any]:
    """Return one or two mechanisms of an ε around the budgets, some of which leak."""
    mechanisms = []
    for _ in range(source.choice((1, 1, 2))):
        epsilon = source.choice((0.05, 0.1, 0.25, 0.29, 0.45, 0.8, 1.1))
        kinds: tuple[dict[str, Any], ...] = (
            {"kind": "declared", "epsilon": epsilon},
            {"kind": "declared", "epsilon": epsilon / 30, "count": 200},
            {"kind": "declared", "epsilon": 0.05, "delta": source.choice((5e-10, 5e-7, 8e-6))},
            {"kind": "gaussian", "sigma": round(4.5 / epsilon, 2)},
        )
        training = {"kind": "dp-sgd", "noise-multiplier": 1, "sampling-rate": 0.001, "steps": 1_000}
        mechanisms.append(
            {
                "mechanism": training if source.random() < 0.3 else source.choice(kinds),
                "attributes": source.choice((["a"], ["b"], ["a", "b"])),
                "unit": source.choice(("user", "user", "user-day")),
                "relation": "add-remove",
                "additive": True,
                "time": {"from": "2026-01-01", "to": "2026-01-02"},
            }
        )
    return {"release": "r", "mechanisms": mechanisms}


def is_allowed(enforced: EnforcedPolicy, body: dict[str, Any]) -> bool:
    release = release_from_body(_as_recorded(body))
    return decide(enforced, None, resolve_or_reject(release, enforced)).allowed


def _as_recorded(value: Any) -> Any:
    """Return a value with exact decimals for its floats, as a parsed file has them."""
    if isinstance(value, float):
        return Fraction(repr(value))
    if isinstance(value, dict):
        return {key: _as_recorded(item) for key, item in value.items()}
    return [_as_recorded(item) for item in value] if isinstance(value, list) else value


def cases() -> Iterator[tuple[CompiledPolicy, list[dict[str, Any]], dict[str, Any]]]:
    for seed in range(POLICIES):
        source = Random(seed)
        policy = random_policy(source)
        releases = [random_release(source) for _ in range(RELEASES)]
        yield compile_dict(policy, NEWEST_DEFAULTS), releases, policy


def test_pruning_changes_no_decision() -> None:
    pruned, decisions = 0, []
    for compiled, releases, policy in cases():
        if compiled.each_release.pruning.kept.all():
            continue
        pruned += int((~compiled.each_release.pruning.kept).sum())
        every_rule, kept = enforce(without_pruning(compiled)), enforce(compiled)
        for release in releases:
            allowed = is_allowed(every_rule, release)
            assert is_allowed(kept, release) == allowed, (policy, release)
            decisions.append(allowed)
    assert pruned > POLICIES / 3
    assert 1 / 5 < sum(decisions) / len(decisions) < 4 / 5


def decide_training() -> tuple[bool, bool]:
    """Return the decisions about a training, with all rules and without the pruned rule."""
    training = {"kind": "dp-sgd", "noise-multiplier": 1.1, "sampling-rate": 0.004267, "steps": 3510}
    mechanism = {
        "mechanism": training,
        "attributes": ["a"],
        "unit": "user",
        "relation": "add-remove",
        "additive": True,
        "time": {"from": "2026-01-01", "to": "2026-12-31"},
    }
    rules = [_rule(unit, "always", {"epsilon": 1.15}, unit) for unit in ("user", "user-month")]
    accounting = {"delta": 1e-5, **RELATIONS[1]}
    policy = {**random_policy(Random(0)), "accounting": accounting, "each-release": rules}
    compiled = compile_dict(policy, NEWEST_DEFAULTS)
    assert list(compiled.each_release.pruning.kept) == [True, False]
    release = {"release": "r", "mechanisms": [mechanism]}
    every_rule, kept = enforce(without_pruning(compiled)), enforce(compiled)
    return is_allowed(every_rule, release), is_allowed(kept, release)


def test_a_sample_of_users_does_not_satisfy_a_pruned_rule_about_months() -> None:
    """If a month of a sampled user is removed, ε is 1.19 for some data; for a user it is 1.133."""
    assert decide_training() == (False, False)


def test_decisions_detect_a_sample_that_satisfies_rules_about_parts() -> None:
    """Canary: the distribution of a sample certifies the rule about users, which implies months."""
    with patch.object(unit_runs, "keep_order", lambda steps, smaller: steps):
        assert decide_training() == (False, True)


def thresholds_only(tighter: BudgetBound, looser: BudgetBound) -> bool:
    """Compare bounds as if no loss distribution decided."""
    return implies_bound(replace(tighter, exact=None), looser)


def test_decisions_detect_pruning_by_thresholds_only() -> None:
    """Canary: without leaks, the thresholds of a smaller ε imply those of a smaller δ."""
    detections = 0
    for compiled, releases, policy in cases():
        with patch.object(pruning, "implies_bound", thresholds_only):
            broken = compile_dict(policy, NEWEST_DEFAULTS)
        if broken.kept_count == compiled.kept_count:
            continue
        pair = enforce(without_pruning(compiled)), enforce(broken)
        detections += any(is_allowed(pair[0], r) != is_allowed(pair[1], r) for r in releases)
    assert detections >= 3
