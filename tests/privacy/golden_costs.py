"""Golden costs: the costs of the first cost rules for all kinds, relations, groups and units.

`python -m tests.privacy.golden_costs` writes the file. The costs of recorded policies must not
change, so a change of the file is an error, except that a new kind adds rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from itertools import product
from pathlib import Path

from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Certificates, Loss
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "costs.json"

_ORDERS = ("1.25", "1.5", "2", "2.5", "3", "5.2", "8", "16", "64", "300")
CERTIFICATES: Certificates = (PURE, *map(renyi, _ORDERS), RHO, MU_SQUARED)
SIZES = (1, 2, 3, 7, 31, 366)
PERIODS = (None, "day", "week", "month", "sliding 7 days", "sliding 30 days", "10 days")

#: Parameters of all kinds, as their authors write them.
MECHANISMS: tuple[dict[str, str | int], ...] = (
    {"kind": "gaussian", "sigma": "3"},
    {"kind": "gaussian", "sigma": "2.5", "sensitivity": "1.5", "sampling-rate": "0.02", "count": 9},
    {"kind": "discrete-gaussian", "sigma": "4", "sensitivity": "2"},
    {"kind": "discrete-gaussian", "sigma": "1", "sampling-rate": "0.01", "count": 1000},
    {"kind": "dp-sgd", "noise-multiplier": "1", "sampling-rate": "0.01", "steps": 1000},
    {"kind": "dp-sgd", "noise-multiplier": "0.7", "sampling-rate": "0.1", "steps": 20},
    {"kind": "dp-sgd", "noise-multiplier": "2", "sampling-rate": "1", "steps": 3},
    {"kind": "tree-aggregation", "noise-multiplier": "5", "steps": 1024, "participations": 10},
    {"kind": "tree-aggregation", "noise-multiplier": "2", "steps": 1000},
    {"kind": "pate", "sigma": "40", "queries": 100},
    {"kind": "laplace", "scale": "2"},
    {"kind": "laplace", "scale": "1", "sampling-rate": "0.05", "count": 10},
    {"kind": "discrete-laplace", "scale": "2", "sensitivity": "3"},
    {"kind": "randomized-response", "truth": "0.525"},
    {"kind": "randomized-response", "values": 5, "noise": "0.5"},
    {"kind": "exponential", "epsilon": "0.5"},
    {"kind": "report-noisy-max", "epsilon": "0.5", "noise": "laplace"},
    {"kind": "sparse-vector", "epsilon-threshold": "0.5", "epsilon-queries": "1", "cutoff": 3},
    {"kind": "declared", "epsilon": "0.5"},
    {"kind": "declared", "epsilon": "0.1", "delta": "1e-9", "sampling-rate": "0.1"},
    {"kind": "declared", "rho": "0.1", "xi": "0.01"},
    {"kind": "declared", "mu": "0.3", "sampling-rate": "0.05"},
)


def golden_costs() -> dict[str, list[str]]:
    """Return the costs in the first rules, by a text that names the case.

    The costs for units are in the file as a digest for each mechanism and pair of relations.
    """
    groups = {name: _as_texts(loss) for name, loss in _group_costs()}
    return {**groups, **{name: [_digest(losses)] for name, losses in _unit_costs()}}


def _group_costs() -> Iterator[tuple[str, Loss]]:
    for fields, relation, k in product(MECHANISMS, NeighbouringRelation, SIZES):
        mechanism = parse_golden(fields)
        yield f"{_name(fields)}; {relation}; {k}", cost(mechanism, k, relation, CERTIFICATES)


def _unit_costs() -> Iterator[tuple[str, list[Loss]]]:
    for fields, stated, target in product(MECHANISMS, NeighbouringRelation, NeighbouringRelation):
        units = tuple(
            PrivacyUnit(str(text), "user", parse_period(text) if text else None, target)
            for text in PERIODS
        )
        losses = [
            loss
            for additive, unit in product((False, True), (units[1], units[4]))
            for loss in cost_by_unit(
                parse_golden(fields), unit, stated, GroupContext(units, additive), CERTIFICATES
            ).values()
        ]
        yield f"{_name(fields)}; {stated} to {target}", losses


def _digest(losses: list[Loss]) -> str:
    return sha256(json.dumps([_as_texts(loss) for loss in losses]).encode()).hexdigest()


def parse_golden(fields: dict[str, str | int]) -> Mechanism:
    """Return the mechanism of one entry of `MECHANISMS`."""
    exact = {
        name: value if name in {"kind", "noise"} and not _is_number(value) else Fraction(value)
        for name, value in fields.items()
    }
    mechanism, problems = parse_mechanism(exact)
    assert mechanism is not None, problems
    return mechanism


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value[0].isdigit()


def _name(fields: dict[str, str | int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in fields.items())


def _as_texts(loss: Loss) -> list[str]:
    return [*("-" if amount is None else str(amount) for amount in loss), str(loss.delta)]


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in golden_costs().items()]
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
