"""A workload of the paper's evaluation → a policy at a total budget, and arriving requests.

A workload holds the requests of one scenario with the Rényi values of their costs; the ready-made
ones have those of the paper's artefact. Budgets, accounting, rounds and unlocking are in the policy
and scenario files of this package; only the schema is written here, since each workload has its
own. Costs are stated at the orders of the accounting file: with the two below, the thresholds of
the paper would promise more than δ allows (theory 2.3).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpolicy.allocation.scenario_file import load_scenario
from dpolicy.allocation.simulation import Arrival
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import ReleaseRejected
from dpolicy.privacy.certificates import format_order
from dpolicy.privacy.mechanisms.registry import Mechanism, parse_mechanism
from dpolicy.privacy.units.calendar import Period, PeriodKind, block_index, block_start
from dpolicy.privacy.units.privacy_units import TouchedDays
from dpolicy.releases.release import MechanismRequest, Release, Selection
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source

#: Where the policy, accounting and workload files of the evaluation are.
FILES = Path(__file__).parent

#: How the rounds ran; its policy and requests are made by `export.py`.
SCENARIO_FILE = FILES / "scenario.yaml"
_SAID = load_scenario(SCENARIO_FILE)

#: The rounds of the evaluation; cohorts are numbered like the rounds in which they join.
ROUNDS = _SAID.rounds
SCHEDULE = _SAID.schedule

#: Total budgets that the figures show, and for which there are policy files.
TOTALS = (3, 5, 7, 10, 15, 20)

#: Months of the files are counted from here.
FIRST_MONTH = (2000, 1)


@dataclass(frozen=True, slots=True)
class Workload:
    """One scenario: its name, schema, mechanisms and requests, as the file has them."""

    scenario: str
    orders: tuple[float, ...]
    attributes: Mapping[str, Any]
    categories: Mapping[str, Any]
    mechanisms: tuple[Mapping[str, Any], ...]
    requests: tuple[Mapping[str, Any], ...]


def load_workload(file: Path) -> Workload:
    """The workload of a file, packed or not."""
    raw = file.read_bytes()
    return parse_workload(json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw))


def bundled_workload(scenario: str) -> Workload:
    """The workload of a scenario that comes with the package."""
    return load_workload(FILES / "data" / f"{scenario}.json.gz")


def parse_workload(document: Mapping[str, Any]) -> Workload:
    """The workload of plain values, as a file has them."""
    return Workload(
        document["scenario"],
        tuple(document["orders"]),
        document["attributes"],
        document["categories"],
        tuple(document["mechanisms"]),
        tuple(document["requests"]),
    )


def policy_for_workload(
    workload: Workload,
    total: int,
    *,
    as_run: bool = True,
    baseline: bool = False,
    profile: str = "classic",
) -> CompiledPolicy:
    """The policy set of a scenario at a total budget, or that of the baseline: one rule."""
    return compile_policy(
        policy_sources(workload, total, as_run=as_run, baseline=baseline, profile=profile)
    )


def policy_sources(
    workload: Workload, total: int, *, as_run: bool, baseline: bool, profile: str
) -> list[Source]:
    """The texts of a policy set: accounting, schema, and the policies at a total budget."""
    folder = FILES / "policies" / ("cohere" if baseline else workload.scenario)
    written = folder.with_name(f"{folder.name}-as-written")
    if not as_run and written.exists():
        folder = written
    return [
        read_source(FILES / "accounting" / f"{profile}.yaml"),
        Source("schema.yaml", schema_text(workload)),
        read_source(folder / f"{total}.yaml"),
    ]


def schema_text(workload: Workload) -> str:
    """The schema of a workload as the policy language writes it."""
    return _SCHEMA.format(
        categories=_entries(workload.categories), attributes=_entries(workload.attributes)
    )


def _entries(entries: Mapping[str, Any]) -> str:
    if not entries:
        return " {}"
    lines = []
    for name, facts in entries.items():
        parts = [
            f"{k}: [{', '.join(v)}]" if k != "risk" else f"risk: {v}" for k, v in facts.items()
        ]
        lines.append(f"\n    {name}: {{{', '.join(parts)}}}")
    return "".join(lines)


_SCHEMA = """\
dpolicy: 1
schema:
  labels:
    deployment: {{values: [standard, black-box], required: true}}
  categories:{categories}
  attributes:{attributes}
  partitions:
    slot: {{from: 0, to: 204799}}
    cohort: {{from: 0, to: 30}}
"""


def resolve_arrivals(workload: Workload, policy: CompiledPolicy) -> list[Arrival]:
    """The requests of a workload, resolved for a policy; cohorts are left to the rounds."""
    curves = [_curve(said, workload.orders, policy) for said in workload.mechanisms]
    enforced = enforce(policy)
    return [_arrival(said, curves[said["mechanism"]], enforced) for said in workload.requests]


def curve_points(
    fields: Mapping[str, Any], orders: tuple[float, ...], policy: CompiledPolicy
) -> dict[str, Fraction]:
    """The Rényi values of a mechanism at the orders of a policy, as the decimals of the file."""
    usable = set(policy.policy_set.accounting.orders)
    values = ((Fraction(repr(o)), v) for o, v in zip(orders, fields["renyi"], strict=True))
    return {format_order(order): Fraction(repr(v)) for order, v in values if order in usable}


def _curve(
    fields: Mapping[str, Any], orders: tuple[float, ...], policy: CompiledPolicy
) -> Mechanism:
    points = curve_points(fields, orders, policy)
    mechanism, problems = parse_mechanism({"kind": "declared", "renyi": points})
    if mechanism is None:
        raise problems[0]
    return mechanism


def _arrival(fields: Mapping[str, Any], curve: Mechanism, enforced: EnforcedPolicy) -> Arrival:
    where: tuple[Mapping[str, Selection], ...] = tuple(
        {"slot": (low, high)} for low, high in fields["ranges"]
    )
    month = fields.get("month") if "user-month" in enforced.policy.units else None
    request = MechanismRequest(
        name="query",
        kind="declared",
        mechanism=curve,
        unit="user",
        relation=None,
        additive=False,
        restatements={} if month is None else {"user-month": curve},
        attributes=tuple(fields["attributes"]),
        labels={"deployment": fields["deployment"]},
        where=where,
        days_read=None if month is None else month_days(month),
    )
    release = Release(str(fields["id"]), "", None, (request,), {})
    mechanisms, problems = resolve_release(release, enforced)
    if problems:
        raise ReleaseRejected(problems)
    return Arrival(release.id, fields["round"], float(fields["utility"]), mechanisms)


def latest_month(round_: int) -> int:
    """The month of a round, as the files count them: four weeks each."""
    return 100 + -(-(round_ + 2) // 4)


@lru_cache(maxsize=64)
def month_days(number: int) -> TouchedDays:
    """The days of a month of the file."""
    period = Period(PeriodKind.MONTH)
    index = block_index(period, date(*FIRST_MONTH, 1).toordinal()) + number
    return TouchedDays(((block_start(period, index), block_start(period, index + 1) - 1),))
