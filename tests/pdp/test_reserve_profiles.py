"""Profiles with reserves, end to end: more releases fit, and every record verifies."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.pdp.builders import noise, started

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.policy.accounting.accounting_defaults import (
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, profile: %s}
units: {user: {}}
schema: {attributes: {views: {risk: low}}}
"""
RULE = "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: %s}}\n"


def allowed(profile: str, defaults: AccountingDefaults, epsilon: int, **parameters: Any) -> int:
    """Return how many of 40 equal releases are allowed; check displayed losses and audit."""
    store = MemoryStore()
    point = started(RULE % epsilon, store=store, head=HEAD % profile, defaults=defaults)
    decisions = [
        point.submit({"release": f"r{n}", "mechanisms": [{"mechanism": noise(**parameters)}]})
        for n in range(40)
    ]
    number = sum(decision.allowed for decision in decisions)
    assert all(decision.allowed for decision in decisions[:number])
    for decision in decisions[: number + 1]:
        (reason,) = decision.reasons
        displayed = reason.after["epsilon"]
        assert displayed is not None
        assert (displayed <= epsilon) == decision.allowed
    assert not audit_ledger(store).findings
    return number


@pytest.mark.parametrize(
    ("profile", "defaults", "gaussians", "discrete", "trainings"),
    (
        ("classic", NEWEST_DEFAULTS, 24, 24, 22),
        ("anchored", SECOND_DEFAULTS, 29, 29, 27),
        ("anchored", NEWEST_DEFAULTS, 32, 32, 27),
        ("gaussian", NEWEST_DEFAULTS, 34, 34, 27),
    ),
)
def test_profiles_admit_so_many_releases(
    profile: str, defaults: AccountingDefaults, gaussians: int, discrete: int, trainings: int
) -> None:
    assert allowed(profile, defaults, 3, kind="gaussian", sigma=10) == gaussians
    assert allowed(profile, defaults, 3, kind="discrete-gaussian", sigma=10) == discrete
    training: dict[str, Any] = {
        "noise-multiplier": "1.685",
        "sampling-rate": "0.005",
        "steps": 1000,
    }
    assert allowed(profile, defaults, 3, kind="dp-sgd", **training) == trainings


def test_a_stated_curve_ends_the_reserves_and_leaves_the_orders() -> None:
    store = MemoryStore()
    point = started(RULE % 3, store=store, head=HEAD % "gaussian")
    gaussian = {"mechanism": noise(kind="gaussian", sigma=10)}
    first = point.submit(
        {
            "release": "stated",
            "mechanisms": [
                {"mechanism": noise(renyi={8: Fraction(1, 1000), 32: Fraction(1, 100)})}
            ],
        }
    )
    assert first.allowed
    decisions = [point.submit({"release": f"r{n}", "mechanisms": [gaussian]}) for n in range(30)]
    assert 0 < sum(decision.allowed for decision in decisions) < 30
