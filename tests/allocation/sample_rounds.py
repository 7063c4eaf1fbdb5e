"""Random small rounds: a policy with every kind of partition, and competing releases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import lru_cache
from itertools import product
from random import Random
from typing import Any

from dpolicy.allocation.problem.candidates import Candidate, make_candidate
from dpolicy.allocation.unlocking import ALL_UNLOCKED, UnlockedShares
from dpolicy.balances.enforced_policy import enforce
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
name: small
accounting: {delta: 1e-6}
units:
  user: {}
  user-month: {period: month}
schema:
  labels:
    deployment: {values: [standard, model], required: true}
  attributes:
    age: {}
    zip: {}
  partitions:
    slot: {from: 0, to: 4}
    cohort: {from: 0, to: 2}
    country: {values: [CH, DE]}
    age: {from: 0, to: 1}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2.5}}
  - name: models
    kind: custom
    when: 'labels.deployment == "model"'
    unit: user
    budget: {rho: 0.08}
  - name: zip
    kind: custom
    when: '"zip" in attributes'
    unit: user
    budget: {renyi: {2: 0.2, 8: 0.8}}
  - {name: age, kind: custom, when: '"age" in attributes', unit: user, budget: {epsilon: 2}}
  - {name: months, kind: custom, when: always, unit: user-month, budget: {epsilon: 1.5}}
each-release:
  - {name: one, kind: custom, when: always, unit: user, budget: {epsilon: 2.2}}
"""

#: One day in each time step that the releases distinguish.
DAYS = [date(2025, 12, 1), date(2026, 1, 1), date(2026, 2, 1), date(2026, 3, 1)]


@dataclass(frozen=True)
class SampleRound:
    """Candidates, and the candidates that were charged before."""

    policy: CompiledPolicy
    past: list[Candidate]
    candidates: list[Candidate]
    unlocked: UnlockedShares


@lru_cache
def small_policy() -> CompiledPolicy:
    return compile_policy([Source("small.yaml", POLICY)])


def points() -> list[Point]:
    axes = [range(5), range(3), range(2), range(2), [day.toordinal() for day in DAYS]]
    return list(product(*axes))


def random_round(seed: int, count: int = 5) -> SampleRound:
    draw, policy = Random(seed), small_policy()
    past = [candidate(policy, draw, f"past-{n}", small=True) for n in range(draw.randrange(4))]
    candidates = [candidate(policy, draw, f"new-{n}") for n in range(count)]
    shares = {cohort: Fraction(draw.randrange(2, 13), 12) for cohort in range(3)}
    unlocked = draw.choice([ALL_UNLOCKED, UnlockedShares(1, shares)])
    return SampleRound(policy, past, candidates, unlocked)


def candidate(policy: CompiledPolicy, draw: Random, name: str, *, small: bool = False) -> Candidate:
    return make_candidate(
        enforce(policy), name, draw.randrange(1, 9), mechanisms(policy, draw, name, small=small)
    )


def mechanisms(
    policy: CompiledPolicy, draw: Random, name: str, *, small: bool = False
) -> tuple[ResolvedMechanism, ...]:
    bodies = [_random_mechanism(draw, n, small) for n in range(draw.choice([1, 1, 2]))]
    release = parse_request({"release": name, "mechanisms": bodies})
    resolved, problems = resolve_release(release, enforce(policy))
    assert not problems
    return resolved


def _random_mechanism(draw: Random, number: int, small: bool) -> dict[str, Any]:
    scale = draw.choice([4, 8]) if small else draw.choice([2, 3, 4, 6, 8])
    kind: dict[str, Any] = draw.choice(
        [
            {"kind": "gaussian", "sigma": 2 * scale},
            {"kind": "laplace", "scale": scale},
            {"kind": "declared", "epsilon": 0.5, "delta": draw.choice([1e-9, 4e-8])},
        ]
    )
    body: dict[str, Any] = {
        "name": f"m{number}",
        "mechanism": kind,
        "unit": "user",
        "additive": True,
        "attributes": draw.choice([[], ["zip"], ["age"]]),
        "labels": {"deployment": draw.choice(["standard", "model"])},
    }
    boxes = [_random_box(draw) for _ in range(draw.choice([0, 1, 1, 2]))]
    if boxes:
        body["where"] = boxes
    if draw.random() < 0.5:
        month = draw.choice([1, 2])
        body["time"] = {"from": f"2026-0{month}-01", "to": f"2026-0{month}-20"}
    return body


def _random_box(draw: Random) -> dict[str, Any]:
    box: dict[str, Any] = {"slot": _random_range(draw, 4)}
    if draw.random() < 0.4:
        box["cohort"] = _random_range(draw, 2)
    if draw.random() < 0.3:
        box["country"] = [draw.choice(["CH", "DE"])]
    if draw.random() < 0.2:
        box["age"] = _random_range(draw, 1)
    return box


def _random_range(draw: Random, highest: int) -> dict[str, int]:
    low, high = sorted((draw.randint(0, highest), draw.randint(0, highest)))
    return {"from": low, "to": high}
