"""Lifecycles of releases in the fault tests: the id determines the body and the statuses.

An id is `PROCESS.THREAD.NUMBER`. The number selects one of six lifecycles: allowed; denied;
reserved; reserved and committed; reserved and committed in part; reserved and voided.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: Statuses of a release after each step; a killed process ends a lifecycle early.
LIFECYCLES = (
    ("allowed",),
    ("reserved", "committed"),
    ("reserved", "voided"),
    ("denied",),
    ("reserved", "committed"),  # in part
    ("reserved",),
)
PARTIAL_COMMIT = 4

#: Every cost is a multiple of this, so that sums are exact.
COST_STEP = Fraction(1, 1000)
DENIED_COST = 5000

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema: {attributes: {zip: {risk: high}, views: {risk: low}}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: BUDGET, delta: 0}}
  - name: zips
    kind: custom
    when: '"zip" in attributes'
    unit: user
    budget: {epsilon: ZIP_LIMIT, delta: 0}
"""


def policy(budget: Fraction = Fraction(1000)) -> CompiledPolicy:
    """Return a policy with one budget for all releases, and 90 % of it for releases on zips."""
    text = POLICY.replace("BUDGET", str(float(budget)))
    return compile_policy(
        [Source("policy.yaml", text.replace("ZIP_LIMIT", str(float(budget * 9 / 10))))]
    )


def request_number(release: str) -> int:
    """Return the position of a release in the sequence of its thread."""
    return int(release.rpartition(".")[2])


def lifecycle(release: str) -> tuple[str, ...]:
    """Return the statuses of a release, step by step."""
    return LIFECYCLES[request_number(release) % len(LIFECYCLES)]


def cost(release: str) -> Fraction:
    """Return the ε of a release."""
    if lifecycle(release) == ("denied",):
        return Fraction(DENIED_COST)
    return COST_STEP * (2 + request_number(release) % 7)


def body(release: str, epsilon: Fraction) -> dict[str, Any]:
    """Return a release body with one pure-DP mechanism; every second one reads zips."""
    attribute = "zip" if request_number(release) % 2 else "views"
    mechanism = {"mechanism": {"kind": "declared", "epsilon": epsilon}, "attributes": [attribute]}
    return {"release": release, "mechanisms": [mechanism]}


def request(point: DecisionPoint, release: str) -> Decision:
    """Submit or reserve a release, for the first time or as a retry."""
    requested = body(release, cost(release))
    if lifecycle(release)[0] == "reserved":
        return point.reserve(requested)
    return point.submit(requested)


def advance(point: DecisionPoint, release: str, status: str) -> None:
    """Bring a release to the next status of its lifecycle; return when it is acknowledged."""
    if status == "committed":
        part = request_number(release) % len(LIFECYCLES) == PARTIAL_COMMIT
        point.commit(release, body(release, cost(release) / 2) if part else None)
    elif status == "voided":
        point.void(release, because="nothing was computed")
    else:
        decision = request(point, release)
        assert decision.allowed == (status != "denied")
        assert not decision.replayed
