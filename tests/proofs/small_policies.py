"""Policies over a small vocabulary, and random ones."""

from __future__ import annotations

from random import Random

from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

HEAD = """\
dpolicy: 1
accounting: {relation: change}
units: {user: {}, user-day: {period: day, of: user}}
schema:
  attributes: {a: {}, b: {}, c: {}}
  labels:
    team: {values: [ads, maps, mail]}
  partitions:
    country: {values: [AT, CH]}
"""

#: Two of three attributes each: the cover needs halves.
TRIANGLE = ("ab", "bc", "ca")

#: Scopes of random rules and questions. One of them fails without the label `team`.
SCOPES = (
    "always",
    "size(attributes) > 1",
    '"a" in attributes',
    '"b" in attributes && "c" in attributes',
    '!("c" in attributes)',
    *(" || ".join(f'"{name}" in attributes' for name in pair) for pair in TRIANGLE),
    'has(labels.team) && labels.team == "ads"',
    '!has(labels.team) || labels.team == "maps"',
    'labels.team in ["ads", "maps"]',
    'mechanism == "gaussian" || "a" in attributes',
)


def rule(name: str, when: str, budget: str, unit: str = "user") -> str:
    """Return the text of a custom policy."""
    return f"  - {{name: {name}, kind: custom, when: '{when}', unit: {unit}, budget: {budget}}}\n"


def compile_rules(*rules: str, each: str = "", head: str = HEAD) -> CompiledPolicy:
    """Compile rules with the small vocabulary."""
    text = head + "policies:\n" + "".join(rules) + (f"each-release:\n{each}" if each else "")
    return compile_policy([Source("policy.yaml", text)])


def triangle(budget: str = "{rho: 1}") -> CompiledPolicy:
    """Return the policy with one rule for each two of three attributes."""
    pairs = {name: " || ".join(f'"{n}" in attributes' for n in name) for name in TRIANGLE}
    return compile_rules(*(rule(name, when, budget) for name, when in pairs.items()))


def random_rules(random: Random, notions: tuple[str, ...]) -> CompiledPolicy:
    """Return a policy of two to four random rules."""
    rules = []
    for number in range(random.randint(2, 4)):
        notion, amount = random.choice(notions), random.randint(1, 3)
        budget = f"{{epsilon: {amount}, delta: 1e-{random.randint(6, 8)}}}"
        if notion != "approximate":
            budget = (
                f"{{epsilon: {amount}, delta: 0}}" if notion == "pure" else f"{{rho: {amount}}}"
            )
        unit = random.choice(("user", "user", "user-day"))
        rules.append(rule(f"r{number}", random.choice(SCOPES), budget, unit))
    return compile_rules(*rules)
