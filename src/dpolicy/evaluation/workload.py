"""Workloads of the paper's evaluation, with their policies and arriving requests.

A workload holds the requests of one scenario with the Rényi values of their costs; the bundled
workloads have the values of the paper's artefact. Budgets, accounting, rounds and unlocking are in
the policy and scenario files of this package. The schema differs between workloads and is written
here. Costs are stated at the orders of the accounting file. The paper's grid also has the
orders 1.5 and 1.75; with them, its thresholds would promise more than δ allows (theory 2.3).
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
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.calendar import Period, PeriodKind, block_index, block_start
from dpolicy.privacy.units.privacy_units import TouchedDays
from dpolicy.releases.release import MechanismRequest, Release, Selection
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source

#: Directory of the policy, accounting and workload files of the evaluation.
FILES = Path(__file__).parent

#: Schedule of the rounds; `run_export.py` writes the policy and the requests that it names.
SCENARIO_FILE = FILES / "scenario.yaml"
_SCENARIO = load_scenario(SCENARIO_FILE)

#: The rounds of the evaluation; cohorts are numbered like the rounds in which they join.
ROUNDS = _SCENARIO.rounds
SCHEDULE = _SCENARIO.schedule

#: Total budgets of the figures; each has policy files.
TOTALS = (3, 5, 7, 10, 15, 20)

#: Month 0 of the workload files.
FIRST_MONTH = (2000, 1)


@dataclass(frozen=True, slots=True)
class Workload:
    """Content of a workload file: name of the scenario, schema, mechanisms and requests."""

    scenario: str
    orders: tuple[float, ...]
    attributes: Mapping[str, Any]
    categories: Mapping[str, Any]
    mechanisms: tuple[Mapping[str, Any], ...]
    requests: tuple[Mapping[str, Any], ...]


def load_workload(file: Path) -> Workload:
    """Read a workload file, plain or compressed with gzip."""
    raw = file.read_bytes()
    return parse_workload(json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw))


def bundled_workload(scenario: str) -> Workload:
    """Read the workload of a scenario that the package contains."""
    return load_workload(FILES / "data" / f"{scenario}.json.gz")


def parse_workload(document: Mapping[str, Any]) -> Workload:
    """Make a workload of the JSON values of a workload file."""
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
    """Compile the policy set of a scenario at a total budget; the baseline has a single rule."""
    return compile_policy(
        policy_sources(workload, total, as_run=as_run, baseline=baseline, profile=profile)
    )


def policy_sources(
    workload: Workload, total: int, *, as_run: bool, baseline: bool, profile: str
) -> list[Source]:
    """Return the sources of a policy set: accounting, schema, and policies."""
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
    """Return the schema of a workload in the policy language."""
    return _SCHEMA.format(
        categories=_format_entries(workload.categories),
        attributes=_format_entries(workload.attributes),
    )


def _format_entries(entries: Mapping[str, Any]) -> str:
    if not entries:
        return " {}"
    lines = []
    for name, properties in entries.items():
        parts = [
            f"{k}: [{', '.join(v)}]" if k != "risk" else f"risk: {v}" for k, v in properties.items()
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
    slot: {{from: 0, to: 204799, of: user}}
    cohort: {{from: 0, to: 30, of: user}}
"""


def resolve_arrivals(workload: Workload, policy: CompiledPolicy) -> list[Arrival]:
    """Resolve the requests of a workload for a policy; the rounds add the cohorts."""
    curves = [_parse_curve(fields, workload.orders, policy) for fields in workload.mechanisms]
    enforced = enforce(policy)
    return [
        _resolve_arrival(fields, curves[fields["mechanism"]], enforced)
        for fields in workload.requests
    ]


def curve_points(
    fields: Mapping[str, Any], orders: tuple[float, ...], policy: CompiledPolicy
) -> dict[str, Fraction]:
    """Return the Rényi values of a mechanism at the orders of a policy, as exact decimals."""
    usable = set(policy.policy_set.accounting.orders)
    values = ((Fraction(repr(o)), v) for o, v in zip(orders, fields["renyi"], strict=True))
    return {format_order(order): Fraction(repr(v)) for order, v in values if order in usable}


def _parse_curve(
    fields: Mapping[str, Any], orders: tuple[float, ...], policy: CompiledPolicy
) -> Mechanism:
    points = curve_points(fields, orders, policy)
    mechanism, problems = parse_mechanism({"kind": "declared", "renyi": points})
    if mechanism is None:
        raise problems[0]
    return mechanism


def _resolve_arrival(
    fields: Mapping[str, Any], curve: Mechanism, enforced: EnforcedPolicy
) -> Arrival:
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
    """Return the month of a round as workload files count it; a month has four weeks."""
    return 100 + -(-(round_ + 2) // 4)


@lru_cache(maxsize=64)
def month_days(number: int) -> TouchedDays:
    """Return the days of a month of a workload file."""
    period = Period(PeriodKind.MONTH)
    index = block_index(period, date(*FIRST_MONTH, 1).toordinal()) + number
    return TouchedDays(((block_start(period, index), block_start(period, index + 1) - 1),))
