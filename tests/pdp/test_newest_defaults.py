"""The state machine under accounting defaults 3, with policies near the borders of its rules.

The steps are drawn from fixed seeds: a random search rarely comes near a border, and the canaries
below must be detected by every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from tests.pdp import state_machine
from tests.pdp.state_machine import Agreement
from tests.pdp.test_stateful import memory

from dpolicy.pdp import request_evaluation
from dpolicy.privacy import thresholds
from dpolicy.privacy.certificates import Certificate
from dpolicy.privacy.loss_distribution import unit_runs
from dpolicy.privacy.loss_distribution.loss_run import loss_run
from dpolicy.privacy.reserves.reserve_limits import reserve_limits

SEEDS, STEPS = 14, 8

NOISE: tuple[dict[str, Any], ...] = (
    {"kind": "gaussian", "sigma": Fraction(2)},
    {"kind": "gaussian", "sigma": Fraction(5)},
    {"kind": "gaussian", "sigma": Fraction(20)},
    {"kind": "declared", "epsilon": Fraction(1, 20)},
    {"kind": "declared", "epsilon": Fraction(1, 10), "delta": Fraction("5e-7")},
    {"kind": "declared", "epsilon": Fraction(1, 2)},
    {"kind": "laplace", "scale": Fraction(4)},
    {"kind": "laplace", "scale": Fraction(10)},
)


def policy(source: Random) -> dict[str, Any]:
    """Return a policy of one or two cumulative rules and mostly a per-release rule."""
    delta = source.choice((1e-7, 1e-5))
    units: dict[str, Any] = {"user": {}, "user-month": {"period": "month"}}

    def rule(name: str, unit: str, epsilons: tuple[float, ...]) -> dict[str, Any]:
        budget = {"epsilon": source.choice(epsilons)}
        return {"name": name, "kind": "custom", "when": "always", "unit": unit, "budget": budget}

    accounting: dict[str, Any] = {"delta": delta, "profile": "anchored"}
    return {
        "dpolicy": 1,
        "accounting": accounting,
        "units": units,
        "schema": {"attributes": {"a": {"risk": "low"}}, "labels": {}, "partitions": {}},
        "policies": [rule(f"p{n}", u, (1, 1.5, 3, 6)) for n, u in enumerate(units)],
        "each-release": [rule("cap", "user", (0.75, 0.95, 2.1, 2.5))],
    }


def body(source: Random) -> list[dict[str, Any]]:
    place = {"unit": "user", "attributes": ["a"], "labels": {}}
    days = {"time": {"from": "2026-01-30", "to": "2026-02-02"}}
    return [
        {
            "mechanism": dict(source.choice(NOISE)),
            **place,
            **(days if source.random() < 0.3 else {}),
        }
        for _ in range(source.choice((1, 1, 2)))
    ]


def run_steps(seed: int) -> None:
    """Run and compare some steps of one ledger."""
    source = Random(seed)
    machine = type("Machine", (Agreement,), {"place": staticmethod(memory)})()
    try:
        machine.start(policy=policy(source), several=[body(source) for _ in range(4)])
        for _ in range(STEPS):
            step = source.choice(("submit", "reserve", "commit", "commit", "check", "apply"))
            at = source.randrange(2)
            if step in ("submit", "reserve"):
                getattr(machine, step)(at=at, several=[body(source) for _ in range(2)])
            elif step == "check":
                machine.check(at=at, mechanisms=body(source))
            elif step == "apply":
                how = source.choice(("other", "tighter", "looser"))
                machine.apply(at=at, policy=policy(source), how=how, accept=source.random() < 0.7)
            else:
                exchange(machine, source)
            machine.same_balances()
    finally:
        machine.teardown()


def exchange(machine: Any, source: Random) -> None:
    """Commit a reservation with a smaller part, or with another mechanism that may cost less."""
    if source.random() < 0.5:
        how = source.choice(("whole", "less", "more", "dropped"))
        machine.commit(at=0, number=source.randrange(30), how=how, moved={})
        return
    past = machine._pick(source.randrange(30), "reserved")
    if past is None:
        return
    small = {**past.requested["mechanisms"][0], "mechanism": NOISE[3]}
    used = {**past.requested, "mechanisms": source.choice(([small], body(source)))}
    release = past.requested["release"]
    machine.model.expire(machine.now)
    with machine._same_refusal(lambda: machine.model.end(release, used)):
        machine.points[0].commit(release, used)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_newest_defaults(seed: int) -> None:
    run_steps(seed)


# Canaries: each is an error that one of the seeds must detect.


def reserves_have_twice_their_limit(patch: pytest.MonkeyPatch) -> None:
    def twice(epsilon: Fraction, mass: Fraction) -> tuple[tuple[Certificate, int], ...]:
        return tuple(
            (certificate, 2 * limit) for certificate, limit in reserve_limits(epsilon, mass)
        )

    patch.setattr(thresholds, "reserve_limits", twice)
    state_machine.compiled.cache_clear()


def a_used_mechanism_may_be_any(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(request_evaluation, "is_part", lambda used, whole: True)


def a_release_is_certified_without_its_leak(patch: pytest.MonkeyPatch) -> None:
    def without_leak(*arguments: Any) -> Any:
        run = loss_run(*arguments)
        return None if run is None else replace(run, leak=Fraction(0))

    patch.setattr(unit_runs, "loss_run", without_leak)


@pytest.mark.parametrize(
    "mistake",
    (
        reserves_have_twice_their_limit,
        a_used_mechanism_may_be_any,
        a_release_is_certified_without_its_leak,
    ),
    ids=lambda mistake: mistake.__name__,
)
def test_the_seeds_detect(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    try:
        with pytest.raises(AssertionError):
            for seed in range(SEEDS):
                run_steps(seed)
    finally:
        state_machine.compiled.cache_clear()
