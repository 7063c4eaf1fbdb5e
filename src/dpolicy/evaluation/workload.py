"""A workload file of the paper's evaluation → a policy at a total budget, and arriving requests.

The files hold the requests of one scenario with the Rényi values that the published figures were
made with. Costs are stated as such a curve, at the 11 orders from 2 to 10⁶: with the two below,
the thresholds of the paper would promise more than δ allows (theory 2.3). At ε_t ≤ 20, δ = 10⁻⁷ the
budgets there are negative anyway, and that of 10¹⁰ is 0.00002 above that of 10⁶.
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

from dpolicy.allocation.rounds import Arrival, Schedule
from dpolicy.allocation.unlocking import Rotation, Unlocking
from dpolicy.enforcement.check import certificates_of
from dpolicy.enforcement.resolution import resolve
from dpolicy.errors import ReleaseRejected
from dpolicy.language.source import Source
from dpolicy.privacy.calendars import Kind, Period, index_of, start_of
from dpolicy.privacy.mechanism import Mechanism, read_mechanism
from dpolicy.privacy.units import Touched
from dpolicy.releases.request import MechanismRequest, Release, Selection
from dpolicy.rules.compiler import CompiledPolicy, compile_policy

#: The rounds of the evaluation; cohorts are numbered like the rounds in which they join.
ROUNDS = range(11, 31)

#: Cohorts are active for 12 rounds and unlock over as many, the first half faster.
SCHEDULE = Schedule(Rotation("cohort", 12), Unlocking(12, Fraction(2, 5)))

#: The orders of the files that a sound split of δ and the language admit (theory 2.3).
LEAST_ORDER, LARGEST_ORDER = 2, 10**6

#: Months of the files are counted from here.
FIRST_MONTH = (2000, 1)

#: Scenario S1 as its figures were made: total budget → that of standard releases and of all.
AS_RUN = {3: ("1.7", "3"), 5: ("1.83", "4.9"), 7: ("1.9", "7"), 10: ("2.0", "9.2857")} | {
    15: ("2.25", "15"),
    20: ("2.5", "20"),
}

#: The same as the text of the paper has it.
AS_WRITTEN = {3: ("1.7", "3"), 5: ("1.8", "5"), 7: ("1.9", "7"), 10: ("2.0", "10")} | {
    15: ("2.3", "15"),
    20: ("2.5", "20"),
}

ATTRIBUTE_BUDGETS = {"low": 20, "medium": 9, "high": 3}
CATEGORY_BUDGETS = {"low": 12, "medium": 10, "high": 5}
#: As run: attributes of low risk have the total budget.
UNLIMITED_RISK = 10**6


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
    return read_workload(json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw))


def read_workload(said: Mapping[str, Any]) -> Workload:
    """The workload of plain values, as a file has them."""
    return Workload(
        said["scenario"],
        tuple(said["orders"]),
        said["attributes"],
        said["categories"],
        tuple(said["mechanisms"]),
        tuple(said["requests"]),
    )


def policy_of(
    workload: Workload, total: int, *, as_run: bool = True, baseline: bool = False
) -> CompiledPolicy:
    """The policy set of a scenario at a total budget, or that of the baseline: one rule."""
    head = _HEAD.format(
        orders=", ".join(_text(order) for order in workload.orders if _usable(order)),
        units="{}\n  user-month: {period: month}" if workload.scenario == "time" else "{}",
        categories=_schema(workload.categories),
        attributes=_schema(workload.attributes),
    )
    if baseline:
        policies = _CUSTOM.format(name="global", when="always", unit="user", epsilon=total)
    else:
        policies = _POLICIES[workload.scenario](total, as_run)
    return compile_policy([Source("paper.yaml", head + policies)])


def arrivals_of(workload: Workload, policy: CompiledPolicy) -> list[Arrival]:
    """The requests of a workload, resolved for a policy; cohorts are left to the rounds."""
    curves = [_curve(said, workload.orders) for said in workload.mechanisms]
    return [_arrival(said, curves[said["mechanism"]], policy) for said in workload.requests]


def _curve(said: Mapping[str, Any], orders: tuple[float, ...]) -> Mechanism:
    """The stated Rényi values, as the decimals that the file has."""
    values = zip(orders, said["renyi"], strict=True)
    points = {_text(o): Fraction(repr(v)) for o, v in values if _usable(o)}
    mechanism, problems = read_mechanism({"kind": "declared", "renyi": points})
    if mechanism is None:
        raise problems[0]
    return mechanism


def _usable(order: float) -> bool:
    return LEAST_ORDER <= order <= LARGEST_ORDER


def _text(order: float) -> str:
    return str(int(order)) if order == int(order) else repr(order)


def _arrival(said: Mapping[str, Any], curve: Mechanism, policy: CompiledPolicy) -> Arrival:
    where: tuple[Mapping[str, Selection], ...] = tuple(
        {"slot": (low, high)} for low, high in said["ranges"]
    )
    month = said.get("month") if "user-month" in policy.checked.vocabulary.units else None
    request = MechanismRequest(
        name="query",
        kind="declared",
        mechanism=curve,
        unit="user",
        relation=None,
        additive=False,
        also={} if month is None else {"user-month": curve},
        attributes=tuple(said["attributes"]),
        labels={"deployment": said["deployment"]},
        where=where,
        touched=None if month is None else _month(month),
    )
    release = Release(str(said["id"]), "", None, (request,), {})
    mechanisms, problems = resolve(release, policy, certificates_of(policy))
    if problems:
        raise ReleaseRejected(problems)
    return Arrival(release.id, said["round"], float(said["utility"]), mechanisms)


@lru_cache(maxsize=64)
def _month(number: int) -> Touched:
    """The days of a month of the file."""
    period = Period(Kind.MONTH)
    index = index_of(period, date(*FIRST_MONTH, 1).toordinal()) + number
    return Touched(((start_of(period, index), start_of(period, index + 1) - 1),))


def _schema(said: Mapping[str, Any]) -> str:
    """Attributes or categories as the policy language writes them."""
    if not said:
        return " {}"
    lines = []
    for name, facts in said.items():
        parts = [
            f"{k}: [{', '.join(v)}]" if k != "risk" else f"risk: {v}" for k, v in facts.items()
        ]
        lines.append(f"\n    {name}: {{{', '.join(parts)}}}")
    return "".join(lines)


def _context(total: int, as_run: bool) -> str:
    standard, every = (AS_RUN if as_run else AS_WRITTEN)[total]
    is_standard = "'labels.deployment == \"standard\"'"
    return _CUSTOM.format(
        name="standard", when=is_standard, unit="user", epsilon=standard
    ) + _CUSTOM.format(name="any", when="always", unit="user", epsilon=every)


def _scope(total: int, as_run: bool) -> str:
    attributes = {**ATTRIBUTE_BUDGETS, **({"low": UNLIMITED_RISK} if as_run else {})}
    return _CUSTOM.format(
        name="global", when="always", unit="user", epsilon=total
    ) + _BY_RISK.format(
        attributes=_budgets(attributes, total), categories=_budgets(CATEGORY_BUDGETS, total)
    )


def _time(total: int, as_run: bool) -> str:
    return _CUSTOM.format(
        name="global", when="always", unit="user", epsilon=total
    ) + _CUSTOM.format(
        name="each-month", when="'\"a1\" in attributes'", unit="user-month", epsilon=min(3, total)
    )


def _budgets(by_risk: Mapping[str, int], total: int) -> str:
    """No scope has more than everything together, before a level multiplies it."""
    parts = (f"{risk}: {{epsilon: {min(most, total)}}}" for risk, most in by_risk.items())
    return f"{{{', '.join(parts)}}}"


_POLICIES = {"context": _context, "scope": _scope, "time": _time}

_HEAD = """\
dpolicy: 1
name: paper
accounting: {{delta: 1e-7, relation: add-remove, orders: [{orders}]}}
units:
  user: {units}
schema:
  labels:
    deployment: {{values: [standard, black-box], required: true}}
  categories:{categories}
  attributes:{attributes}
  partitions:
    slot: {{from: 0, to: 204799}}
    cohort: {{from: 0, to: 30}}
policies:
"""

_CUSTOM = """\
  - {{name: {name}, kind: custom, when: {when}, unit: {unit}, budget: {{epsilon: {epsilon}}}}}
"""

_BY_RISK = """\
  - {{name: per-attribute, kind: attribute, unit: user, budgets: {attributes}}}
  - name: per-category
    kind: category
    unit: user
    budgets: {categories}
    levels: {{strong: {{times: 1.5}}, weak: {{times: 2}}}}
"""
