"""The id of a release → its body and what becomes of it, for children and checkers alike.

An id is `PROCESS.THREAD.NUMBER`; the number says which of six stories it is: allowed, denied, held,
held and used, held and used in part, held and given back.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: What a release is after each step; a killed process ends a story early.
STORIES = (
    ("allowed",),
    ("reserved", "committed"),
    ("reserved", "voided"),
    ("denied",),
    ("reserved", "committed"),  # in part
    ("reserved",),
)
IN_PART = 4

#: The cost of a release is a multiple of this, so that sums are exact.
STEP = Fraction(1, 1000)
TOO_MUCH = 5000

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
    budget: {epsilon: MOST, delta: 0}
"""


def policy(budget: Fraction = Fraction(1000)) -> CompiledPolicy:
    """A budget for everything, and most of it for zips."""
    text = POLICY.replace("BUDGET", str(float(budget)))
    return compile_policy(
        [Source("policy.yaml", text.replace("MOST", str(float(budget * 9 / 10))))]
    )


def number_of(release: str) -> int:
    """Which request of its thread a release is."""
    return int(release.rpartition(".")[2])


def story(release: str) -> tuple[str, ...]:
    """What becomes of a release, step by step."""
    return STORIES[number_of(release) % len(STORIES)]


def cost(release: str) -> Fraction:
    """The ε that a release asks for."""
    if story(release) == ("denied",):
        return Fraction(TOO_MUCH)
    return STEP * (2 + number_of(release) % 7)


def body(release: str, epsilon: Fraction) -> dict[str, Any]:
    """A release of one pure ε; every other one is about zips."""
    attribute = "zip" if number_of(release) % 2 else "views"
    mechanism = {"mechanism": {"kind": "declared", "epsilon": epsilon}, "attributes": [attribute]}
    return {"release": release, "mechanisms": [mechanism]}


def ask(point: DecisionPoint, release: str) -> Decision:
    """Ask for a release, for the first time or again."""
    asked = body(release, cost(release))
    if story(release)[0] == "reserved":
        return point.reserve(asked)
    return point.submit(asked)


def step(point: DecisionPoint, release: str, status: str) -> None:
    """Take a release to the next status of its story; returns when that is acknowledged."""
    if status == "committed":
        part = number_of(release) % len(STORIES) == IN_PART
        point.commit(release, body(release, cost(release) / 2) if part else None)
    elif status == "voided":
        point.void(release, because="nothing was computed")
    else:
        decision = ask(point, release)
        assert decision.allowed == (status != "denied")
        assert not decision.replayed
