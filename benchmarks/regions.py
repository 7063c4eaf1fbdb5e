"""How long a decision takes where places are told apart, and what the segments weigh.

Two shapes: the paper's (a partition of 204,800 values in ranges, 12 of 24 cohorts at a time that
change every 500 releases, 181 rules of which 33 are kept, 14 orders), and three partitions of
50 × 120 × 10 with random boxes. The column before the last is the same after a tenth of the
history: the time goes with the bounds drawn, not with the size of the domain.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.decide import charges_by_region, decide
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

ORDERS = "2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256, 512, 1024"


def policy(partitions: str) -> CompiledPolicy:
    """The rules of the paper's second scenario: 181, most of them implied by the one for all."""
    risks = ["high"] * 15 + ["medium"] * 15 + ["low"] * 120
    random.Random(1).shuffle(risks)
    levels = ("member", "strong", "weak")
    lines = ["dpolicy: 1", f"accounting: {{delta: 1e-7, orders: [{ORDERS}]}}", "schema:"]
    lines += ["  categories:", *(f"    c{n}: {{risk: {risks[n]}}}" for n in range(10))]
    lines += ["  attributes:"]
    for number, risk in enumerate(risks):
        lines.append(f"    a{number}: {{risk: {risk}, {levels[number % 3]}: [c{number % 10}]}}")
    lines += [f"  partitions: {partitions}", "policies:"]
    budgets = "{low: {epsilon: 20000}, medium: {epsilon: 9000}, high: {epsilon: 3000}}"
    lines += [
        "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 20000}}",
        f"  - {{name: attr, kind: attribute, unit: user, budgets: {budgets}}}",
        f"  - {{name: cat, kind: category, unit: user, budgets: {budgets},",
        "     levels: {strong: {times: 1.5}, weak: {times: 2}}}",
    ]
    return compile_policy([Source("policy.yaml", "\n".join(lines) + "\n")])


def bodies(where: Callable[[random.Random, int], dict[str, Any]], count: int) -> Iterator[Any]:
    """Releases of four attributes, most of them the popular ones."""
    chosen = random.Random(7)
    popular = [1 / (n + 1) for n in range(150)]
    for number in range(count):
        names = {f"a{n}" for n in chosen.choices(range(150), popular, k=4)}
        yield {
            "release": f"r{number}",
            "mechanisms": [
                {
                    "mechanism": {"kind": "gaussian", "sigma": Fraction(chosen.choice((20, 50)))},
                    "unit": "user",
                    "attributes": sorted(names),
                    "where": [where(chosen, number)],
                }
            ],
        }


def slots(chosen: random.Random, number: int) -> dict[str, Any]:
    """A range of the partition, for the 12 cohorts of the week."""
    size = int(204_800 * chosen.betavariate(1, 5)) + 1
    start, cohort = chosen.randrange(204_800 - size), number // 500
    return {
        "slot": {"from": Fraction(start), "to": Fraction(start + size)},
        "cohort": {"from": Fraction(cohort), "to": Fraction(cohort + 11)},
    }


def boxes(chosen: random.Random, _: int) -> dict[str, Any]:
    """A box of three partitions."""

    def side(size: int) -> dict[str, Fraction]:
        low, high = sorted(chosen.sample(range(size), 2))
        return {"from": Fraction(low), "to": Fraction(high)}

    return {"x": side(50), "y": side(120), "z": side(10)}


def measured(name: str, compiled: CompiledPolicy, where: Any, history: int) -> None:
    """Charge a history, then time decisions of the same kind."""
    enforced = enforce(compiled)
    of = enforced.cumulative
    balances = of.empty_balances()

    def resolved(body: Any) -> tuple[ResolvedMechanism, ...]:
        mechanisms, problems = resolve_release(release_from_body(body), enforced)
        if problems:
            raise problems[0]
        return mechanisms

    asked = [resolved(body) for body in bodies(where, history + 300)]
    early = (0.0, 0.0)
    start = time.process_time()
    for number, mechanisms in enumerate(asked[:history]):
        matches = [of.compiled.index.match(m.predicate_input) for m in mechanisms]
        for charge in charges_by_region(of, mechanisms, matches):
            balances.add(charge, 1)
        if number == history // 10:
            early = timings(enforced, balances, asked[history:])
    adding = time.process_time() - start
    gc.collect()
    found = timings(enforced, balances, asked[history:])
    cells = sum(len(segments) for segments in balances.segments.values())
    size = sum(s.bytes_used for s in balances.segments.values()) + balances.finite.nbytes
    print(
        f"{name:<26}{compiled.kept_count:>7}{history:>9,}{cells:>11,}{size / 2**20:>8.0f}"
        f"{found[0]:>9.2f}{found[1]:>9.2f}{early[0]:>9.2f}{adding / history * 1e3:>10.2f}"
    )


def timings(enforced: EnforcedPolicy, balances: Any, asked: list[Any]) -> tuple[float, float]:
    """The median and the worst of a hundred of decisions, in ms."""
    laps = []
    for mechanisms in asked:
        fresh = [replace(mechanism) for mechanism in mechanisms]
        start = time.process_time()
        decide(enforced, balances, fresh)
        laps.append((time.process_time() - start) * 1e3)
    laps.sort()
    return laps[len(laps) // 2], laps[int(len(laps) * 0.99)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the history")
    scale = parser.parse_args().scale
    print(
        f"{'shape':<26}{'rules':>7}{'past':>9}{'cells':>11}{'MB':>8}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'at 1/10':>9}{'ms/charge':>10}"
    )
    paper = policy("{slot: {from: 0, to: 204799}, cohort: {from: 0, to: 23}}")
    measured("204,800 × 24 cohorts", paper, slots, int(6000 * scale))
    three = policy("{x: {from: 0, to: 49}, y: {from: 0, to: 119}, z: {from: 0, to: 9}}")
    measured("50 × 120 × 10 boxes", three, boxes, int(5000 * scale))


if __name__ == "__main__":
    main()
