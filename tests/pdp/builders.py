"""Builders of policies, releases and decision points for tests."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS, AccountingDefaults
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-day: {period: day}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}}
  labels:
    stage: {values: [final, tuning], default: final}
    purpose: {values: [research, product], many: true}
    team: {values: [ads, maps]}
  partitions:
    country: {values: [AT, CH]}
    age: {from: 0, to: 119}
"""
#: The head with the profile of the paper, whose thresholds many tests state.
CLASSIC = HEAD.replace("delta: 1e-7", "delta: 1e-7, profile: classic")
GLOBAL = "  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2}}\n"
ZIP = "  - {name: zips, kind: custom, when: '\"zip\" in attributes', unit: user, budget: %s}\n"


def policy(
    *policies: str,
    head: str = HEAD,
    each: str = "",
    defaults: AccountingDefaults = NEWEST_DEFAULTS,
) -> CompiledPolicy:
    """Compile a policy set from a head, base policies and per-release policies."""
    text = head + "policies:\n" + "".join(policies) + (f"each-release:\n{each}" if each else "")
    return compile_policy([Source("policy.yaml", text)], defaults)


def started(*policies: str, store: LedgerStore | None = None, **more: Any) -> DecisionPoint:
    """Return a decision point with an active policy."""
    point = DecisionPoint(store or MemoryStore())
    point.apply(policy(*policies or (GLOBAL,), **more))
    return point


def exceeded_rules(point: DecisionPoint, candidate: CompiledPolicy) -> list[RuleStatus]:
    """Return the rules of a candidate policy that recorded releases exceed."""
    conflicts = point.conflicts(candidate)
    exceeded = [conflict for conflict in conflicts if isinstance(conflict, RuleStatus)]
    assert len(exceeded) == len(conflicts), "the candidate redefines a name"
    return exceeded


def noise(**parameters: Any) -> dict[str, Any]:
    """Return mechanism parameters with exact numbers; `declared` unless `kind` is given."""
    exact = {k: v if k in ("kind", "renyi") else Fraction(str(v)) for k, v in parameters.items()}
    return {"kind": "declared", **exact}


def mechanism(attributes: tuple[str, ...] = (), **parameters: Any) -> dict[str, Any]:
    """Return one mechanism of a release."""
    return {"mechanism": noise(**parameters), "unit": "user", "attributes": sorted(attributes)}


def body(release: str, *mechanisms: dict[str, Any]) -> dict[str, Any]:
    """Return a release as plain values."""
    return {"release": release, "mechanisms": list(mechanisms)}


def pure(release: str, epsilon: str, *attributes: str) -> dict[str, Any]:
    """Return a release with one declared pure ε."""
    return body(release, mechanism(attributes, epsilon=epsilon))
