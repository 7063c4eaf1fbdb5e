"""Every accepted mechanism has a cost, at any size and order: no overflow, no NaN, not slow."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from fractions import Fraction

import pytest
from tests.reference.conversions import epsilon_at

from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS, parse_mechanism
from dpolicy.privacy.mechanisms.sampling.changed_sample import ChangedSample
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

ORDERS = ["1.01", "1.0100000001", "1.5", "2", "2.0000001", "255.5", "256", "256.5", "1e6", "1e10"]
CERTIFICATES = (PURE, RHO, MU_SQUARED, *map(renyi, ORDERS))
GROUPS = [1, 2, 31, 366, 10**4, 10**6, 4 * 10**6]
EDGES = ["1e-9", "1e-6", "0.001", "0.1", "0.5", "1", "3", "40", "1000", "1e6", "1e9"]


def random_number(rng: random.Random) -> Fraction:
    return Fraction(rng.choice(EDGES)) * Fraction(rng.choice(["1", "1/3", "0.999"]))


def random_fields(rng: random.Random, kind: str) -> dict[str, object]:
    rate = Fraction(rng.choice(["1e-9", "1e-5", "0.01", "0.5", "0.999999", "1"]))
    chance = Fraction(rng.choice(["0.500001", "0.6", "0.75", "0.99", "0.999999"]))
    whole = rng.choice([1, 2, 3, 1000, 10**9])
    options: Mapping[str, tuple[dict[str, object], ...]] = {
        "randomized-response": ({"truth": chance}, {"values": whole + 1, "noise": 1 - chance}),
        "report-noisy-max": tuple(
            {"epsilon": random_number(rng), "noise": noise}
            for noise in ("gumbel", "laplace", "exponential")
        ),
        "declared": (
            {"epsilon": random_number(rng)},
            {"epsilon": random_number(rng), "delta": Fraction(1, 10 ** rng.randint(1, 99))},
            {"rho": random_number(rng), "xi": random_number(rng)},
            {"rho": random_number(rng)},
            {"mu": random_number(rng)},
            {"renyi": {2: Fraction(1, 10), 64: Fraction(4), 10**6: Fraction(10**5)}},
        ),
        "sparse-vector": (
            {"epsilon-threshold": random_number(rng), "epsilon-queries": random_number(rng)}
            | {"cutoff": whole},
        ),
        "dp-sgd": (
            {"noise-multiplier": random_number(rng), "steps": whole, "sampling-rate": rate},
        ),
        "tree-aggregation": ({"noise-multiplier": random_number(rng), "steps": whole},),
        "pate": ({"sigma": random_number(rng), "queries": whole},),
        "exponential": ({"epsilon": random_number(rng)},),
    }
    noise = "scale" if "laplace" in kind else "sigma"
    plain: tuple[dict[str, object], ...] = (
        {noise: random_number(rng), "sensitivity": random_number(rng)},
    )
    fields: dict[str, object] = {"kind": kind, **rng.choice(options.get(kind, plain))}
    if rng.random() < 0.5:
        fields["sampling-rate"] = rate
    return fields


@pytest.mark.parametrize("rules", CostRules)
@pytest.mark.parametrize("kind", MECHANISM_KINDS)
def test_every_accepted_mechanism_has_a_cost(kind: str, rules: CostRules) -> None:
    rng = random.Random(kind)
    slowest = 0.0
    for _ in range(60):
        mechanism, problems = parse_mechanism(random_fields(rng, kind))
        if mechanism is None:
            assert {problem.code for problem in problems} <= {"M006"}
            continue
        k, relation = rng.choice(GROUPS), rng.choice(list(NeighbouringRelation))
        started = time.process_time()
        loss = cost(mechanism, k, relation, CERTIFICATES, rules)
        slowest = max(slowest, time.process_time() - started)
        assert 0 <= loss.delta <= 1
        assert all(amount is None or amount >= 0 for amount in loss)
        assert any(amount is None or amount > 0 for amount in loss)
        assert epsilon_at(loss, Fraction(1, 10**6)) >= 0
    assert slowest < 0.5  # a guard against loops over k, not a benchmark


def test_every_changed_sample_has_a_cost() -> None:
    rng = random.Random(1)
    for _ in range(150):
        ratio, rate = random_number(rng), Fraction(rng.choice(["1e-9", "0.01", "0.5", "0.999999"]))
        mechanism = ChangedSample(ratio, sampling_rate=rate)
        loss = cost(mechanism, rng.choice(GROUPS), NeighbouringRelation.CHANGE, CERTIFICATES)
        assert all(amount is None or amount > 0 for amount in loss)


def test_imports_are_light() -> None:
    """No array library and no accounting library: the command line imports these modules."""
    heavy = "numpy scipy dp_accounting mpmath"
    code = (
        "import sys, dpolicy.privacy.units.group_privacy; "
        f"print(set('{heavy}'.split()) & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
