"""Benchmark of headroom: CPU time of one call with 10,000 rules, all of which the release matches.

It prints a table: rules without partitions, rules that partitions split into cells, and the first
call of each, which also describes every rule. The goal is at most one second.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.decide import ATTRIBUTES
from benchmarks.decide import policy as make_policy

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source


def split_policy() -> CompiledPolicy:
    """Return the policy of `benchmarks/decide.py` with a partition and a unit with a period."""
    lines = ["dpolicy: 1", "accounting: {delta: 1e-7}"]
    lines += ["units: {user: {}, user-day: {period: day}}", "schema:", "  attributes:"]
    lines += [f"    a{number}: {{risk: high}}" for number in range(ATTRIBUTES)]
    lines.append("  partitions: {age: {from: 0, to: 119}}")
    lines.append("  labels:")
    lines += [f"    l{n}: {{values: [v0, v1, v2], default: v0}}" for n in range(3)]
    lines.append("policies:")
    lines.append("  - {name: attr, kind: attribute, unit: user, budgets: {high: {epsilon: 1000}}}")
    for n in range(3):
        lines += [
            f"  - name: e{n}",
            "    kind: extension",
            "    settings:",
            f"      - {{name: first, when: 'labels.l{n} == \"v0\"', budget: same}}",
            f"      - {{name: some, when: 'labels.l{n} != \"v2\"', budget: {{times: 1.5}}}}",
            "      - {name: any, when: always, budget: {times: 3}}",
        ]
    return compile_policy([Source("policy.yaml", "\n".join(lines) + "\n")])


def wide_body(name: str, mechanisms: int, **place: Any) -> dict[str, Any]:
    """Return a release that reads every attribute, in some mechanisms."""
    request = {
        "mechanism": {"kind": "gaussian", "sigma": 500},
        "unit": "user",
        "attributes": sorted(f"a{number}" for number in range(ATTRIBUTES)),
        **place,
    }
    return {"release": name, "mechanisms": [request] * mechanisms}


def measure_call(point: DecisionPoint, body: dict[str, Any], **options: Any) -> tuple[float, Any]:
    """Return the CPU seconds of one call, and the headroom."""
    start = time.process_time()
    headroom = point.headroom(body, **options)
    return time.process_time() - start, headroom


def print_calls(name: str, point: DecisionPoint, body: dict[str, Any], **options: Any) -> None:
    """Print the CPU time of the first call and of the best of three later ones."""
    first, headroom = measure_call(point, body, **options)
    later = min(measure_call(point, body, **options)[0] for _ in range(3))
    count = f"{len(headroom.rules):,} rules"
    print(f"{name:<44} {count:>13} {headroom.more:>8} {first:>9.3f} s {later:>9.3f} s")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the CPU time of headroom.")
    parser.add_argument("--cells", type=int, default=60, help="cells of the partitioned ledger")
    cells = parser.parse_args().cells
    print(f"{'':<44} {'matched':>13} {'more':>8} {'first':>11} {'later':>11}")
    point = DecisionPoint(MemoryStore())
    point.apply(make_policy())
    point.submit(wide_body("past", 1))
    print_calls("without partitions", point, wide_body("new", 1))
    print_calls("without partitions, 16 mechanisms", point, wide_body("new", 16))
    point = DecisionPoint(MemoryStore())
    point.apply(split_policy())
    for number in range(cells):
        place = {"age": {"from": 2 * number % 120, "to": 2 * number % 120}}
        point.submit(wide_body(f"past-{number}", 1, where=place))
    point.read_state(lambda state: None)  # charge the past releases
    print_calls(f"{2 * cells} cells", point, wide_body("new", 1))
    print_calls(f"{2 * cells} cells, 16 mechanisms", point, wide_body("new", 16))
    some = wide_body("new", 1, where={"age": {"from": 0, "to": 9}})
    print_calls("10 of these cells", point, some)
    print_calls("10 of these cells, most accurate", point, some, most_accurate=True)


if __name__ == "__main__":
    main()
