"""Small workloads: a few dozen requests with the labels of all scenarios."""

from __future__ import annotations

from random import Random
from typing import Any

from dpolicy.evaluation.workload import Workload, parse_workload

ORDERS = [1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 1e6, 1e10]
SLOTS = 204_800


def workload(scenario: str, seed: int = 0, count: int = 60, rounds: int = 14) -> Workload:
    """Make a workload of few requests that are costly enough to compete."""
    rng = Random(seed)
    scoped = scenario in ("scope", "whole")
    document: dict[str, Any] = {
        "scenario": scenario,
        "orders": ORDERS,
        "categories": {"c0": {"risk": "high"}, "c1": {"risk": "low"}} if scoped else {},
        "attributes": _attributes(scoped),
        "mechanisms": [
            {"renyi": [0.02 * order for order in ORDERS]},
            {"renyi": [0.2] * len(ORDERS)},
            {"renyi": [0.003 * order for order in ORDERS]},
            {"renyi": [0.0002 * order for order in ORDERS]},
        ],
        "requests": [_request(rng, number, rounds) for number in range(count)],
    }
    document["requests"].sort(key=lambda request: request["round"])
    return parse_workload(document)


def _attributes(scoped: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "a0": {"risk": "low"},
        "a1": {"risk": "medium"},
        "a2": {"risk": "high"},
    }
    if scoped:
        attributes["a0"] |= {"member": ["c0"]}
        attributes["a1"] |= {"member": ["c1"], "strong": ["c0"]}
        attributes["a2"] |= {"member": ["c1"], "weak": ["c0"]}
    return attributes


def _request(rng: Random, number: int, rounds: int) -> dict[str, Any]:
    low, high = sorted(rng.sample(range(0, SLOTS, 5000), 2))
    wrapping = rng.random() < 0.3
    return {
        "id": number,
        "round": 11 + rng.randrange(rounds),
        "mechanism": rng.randrange(4),
        "ranges": [[0, low], [high, SLOTS - 1]] if wrapping else [[low, high - 1]],
        "utility": rng.randrange(1, 100),
        "attributes": rng.choice([["a0"], ["a0", "a1"], ["a2"], ["a1", "a2"]]),
        "deployment": rng.choice(["standard", "black-box"]),
        "month": 104 + rng.randrange(-4, 3),
    }
