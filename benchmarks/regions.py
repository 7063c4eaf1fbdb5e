"""Time of a decision on partitioned data, and memory of the segments.

The script measures two shapes. One is the paper's: a partition of 204,800 values in ranges, 12 of
24 cohorts at a time that change every 500 releases, 181 rules of which 33 are kept, and 14 orders.
The other has three partitions of 50 × 120 × 10 values with random boxes. The column before the
last is the median after a tenth of the history: the time depends on the number of drawn bounds, not
on the size of the domain.

The last lines compare two ways to charge and check releases of `examples/web-analytics`: all rules
of a release together, with one grid for the rules of a granularity, and one rule after the other,
each with a grid of its own. The ratio is that of CPU times of the same run.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.decide import charges_by_region, check_charges, decide
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

WEB = Path(__file__).parent.parent / "examples" / "web-analytics"
WEB_ATTRIBUTES = ("page-views", "click-path", "search-terms", "ip-prefix", "language", "basket")
ORDERS = "2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256, 512, 1024"


def policy(partitions: str) -> CompiledPolicy:
    """Return the 181 rules of the paper's second scenario; the global rule implies most of them."""
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


def bodies(
    draw_selection: Callable[[random.Random, int], dict[str, Any]], count: int
) -> Iterator[Any]:
    """Yield releases of up to four attributes, drawn with Zipf weights."""
    rng = random.Random(7)
    weights = [1 / (n + 1) for n in range(150)]
    for number in range(count):
        names = {f"a{n}" for n in rng.choices(range(150), weights, k=4)}
        yield {
            "release": f"r{number}",
            "mechanisms": [
                {
                    "mechanism": {"kind": "gaussian", "sigma": Fraction(rng.choice((20, 50)))},
                    "unit": "user",
                    "attributes": sorted(names),
                    "where": [draw_selection(rng, number)],
                }
            ],
        }


def draw_slots(rng: random.Random, number: int) -> dict[str, Any]:
    """Draw a range of the partition, for the 12 active cohorts."""
    size = int(204_800 * rng.betavariate(1, 5)) + 1
    start, cohort = rng.randrange(204_800 - size), number // 500
    return {
        "slot": {"from": Fraction(start), "to": Fraction(start + size)},
        "cohort": {"from": Fraction(cohort), "to": Fraction(cohort + 11)},
    }


def draw_boxes(rng: random.Random, _: int) -> dict[str, Any]:
    """Draw a box of three partitions."""

    def side(size: int) -> dict[str, Fraction]:
        low, high = sorted(rng.sample(range(size), 2))
        return {"from": Fraction(low), "to": Fraction(high)}

    return {"x": side(50), "y": side(120), "z": side(10)}


def print_row(name: str, compiled: CompiledPolicy, draw_selection: Any, history: int) -> None:
    """Charge a history, then measure decisions on similar releases."""
    enforced = enforce(compiled)
    section = enforced.cumulative
    balances = section.empty_balances()

    def resolve(body: Any) -> tuple[ResolvedMechanism, ...]:
        mechanisms, problems = resolve_release(release_from_body(body), enforced)
        if problems:
            raise problems[0]
        return mechanisms

    requests = [resolve(body) for body in bodies(draw_selection, history + 300)]
    early = (0.0, 0.0)
    start = time.process_time()
    for number, mechanisms in enumerate(requests[:history]):
        matches = [section.compiled.index.match(m.predicate_input) for m in mechanisms]
        for charge in charges_by_region(section, mechanisms, matches):
            balances.add(charge, 1)
        if number == history // 10:
            early = decision_times(enforced, balances, requests[history:])
    seconds = time.process_time() - start
    gc.collect()
    final = decision_times(enforced, balances, requests[history:])
    grids = balances.grids.grids
    segment_count = sum(len(grid.segments) for grid in grids)
    size = sum(grid.segments.bytes_used for grid in grids) + balances.finite.nbytes
    print(
        f"{name:<26}{compiled.kept_count:>7}{history:>9,}{segment_count:>11,}{size / 2**20:>8.0f}"
        f"{final[0]:>9.2f}{final[1]:>9.2f}{early[0]:>9.2f}{seconds / history * 1e3:>10.2f}"
    )


def decision_times(
    enforced: EnforcedPolicy, balances: Any, requests: list[Any]
) -> tuple[float, float]:
    """Return the median and the 99th percentile of the decision times in ms."""
    times = []
    for mechanisms in requests:
        copies = [replace(mechanism) for mechanism in mechanisms]
        start = time.process_time()
        decide(enforced, balances, copies)
        times.append((time.process_time() - start) * 1e3)
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)]


def web_policy() -> CompiledPolicy:
    """Return the policy of the example with budgets × 1,000, so that no release is denied."""

    def larger(match: re.Match[str]) -> str:
        return f"epsilon: {int(1000 * Fraction(match[1]))}"

    names = ("policies.yaml", "schema.yaml", "units.yaml")
    texts = {name: (WEB / name).read_text("utf-8") for name in names}
    texts["policies.yaml"] = re.sub("epsilon: ([0-9.]+)", larger, texts["policies.yaml"])
    return compile_policy([Source(name, text) for name, text in texts.items()])


def web_bodies(count: int) -> Iterator[Any]:
    """Yield releases on one day, a week or a month, most of them on one or two countries."""
    rng = random.Random(3)
    for number in range(count):
        first = date(2026, 1, 1) + timedelta(days=rng.randrange(300))
        last = first + timedelta(days=rng.choice((0, 0, 6, 29)))
        mechanism: dict[str, Any] = {
            "mechanism": {"kind": "gaussian", "sigma": Fraction(rng.choice((80, 300, 450)))},
            "unit": rng.choice(("user-day", "user-month")),
            "relation": "change",
            "attributes": sorted(rng.sample(WEB_ATTRIBUTES, rng.choice((1, 2, 3)))),
            "labels": {
                "dataset": rng.choice(("web", "checkout")),
                "purpose": [rng.choice(("research", "product", "advertising"))],
                "stage": rng.choice(("final", "tuning")),
            },
            "time": {"from": first.isoformat(), "to": last.isoformat()},
        }
        if rng.random() < 0.7:
            countries = rng.sample(("AT", "CH", "DE", "FR", "IT"), rng.choice((1, 2)))
            mechanism["where"] = [{"country": sorted(countries)}]
        yield {"release": f"w{number}", "by": "web", "mechanisms": [mechanism]}


def split_by_rule(charge: Charge) -> list[Charge]:
    """Return a charge as one charge per rule."""
    numbers, rows = charge.rule_numbers, charge.rows
    return [
        Charge(numbers[n : n + 1], rows[n : n + 1], charge.region, charge.cutoff)
        for n in range(len(numbers))
    ]


def print_sharing(history: int) -> None:
    """Compare charges and checks of all rules together with those of one rule after the other."""
    enforced = enforce(web_policy())
    section = enforced.cumulative
    together: list[list[Charge]] = []
    for body in web_bodies(history + 150):
        mechanisms, _ = resolve_release(release_from_body(body), enforced)
        matches = [section.compiled.index.match(m.predicate_input) for m in mechanisms]
        together.append(list(charges_by_region(section, mechanisms, matches)))
    separate = [split_by_rule(charge) for (charge,) in together]

    def charge_all(requests: list[list[Charge]]) -> tuple[Balances, float]:
        balances, start = section.empty_balances(), time.thread_time()
        for charge in (charge for charges in requests[:history] for charge in charges):
            balances.add(charge, 1)
        return balances, (time.thread_time() - start) / history * 1e3

    def check_all(balances: Balances, requests: list[list[Charge]]) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            for charge in (charge for charges in requests[history:] for charge in charges):
                check_charges(section, balances, [charge])
            best = min(best, time.thread_time() - start)
        return best / 150 * 1e3

    rules = sum(len(charge.rule_numbers) for (charge,) in together) / len(together)
    print(f"\nweb-analytics, {rules:.0f} rules per release, CPU ms per release")
    print(f"{'':<26}{'grids':>9}{'cells':>9}{'MB':>8}{'charge':>9}{'check':>9}")
    measured = {}
    for name, requests in (("together", together), ("one rule at a time", separate)):
        balances, charging = charge_all(requests)
        measured[name] = charging, check_all(balances, requests)
        grids = balances.grids.grids
        cells, size = sum(len(g.segments) for g in grids), sum(g.segments.bytes_used for g in grids)
        print(
            f"{name:<26}{len(grids):>9}{cells:>9,}{size / 2**20:>8.1f}"
            f"{measured[name][0]:>9.2f}{measured[name][1]:>9.2f}"
        )
    pairs = zip(measured["one rule at a time"], measured["together"], strict=True)
    charge_ratio, check_ratio = (slow / fast for slow, fast in pairs)
    print(f"together is faster: charge × {charge_ratio:.1f}, check × {check_ratio:.1f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the length of the history"
    )
    scale = parser.parse_args().scale
    print(
        f"{'shape':<26}{'rules':>7}{'past':>9}{'segments':>11}{'MB':>8}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'at 1/10':>9}{'ms/charge':>10}"
    )
    paper_policy = policy("{slot: {from: 0, to: 204799}, cohort: {from: 0, to: 23}}")
    print_row("204,800 × 24 cohorts", paper_policy, draw_slots, int(6000 * scale))
    box_policy = policy("{x: {from: 0, to: 49}, y: {from: 0, to: 119}, z: {from: 0, to: 9}}")
    print_row("50 × 120 × 10 boxes", box_policy, draw_boxes, int(5000 * scale))
    print_sharing(max(int(600 * scale), 10))


if __name__ == "__main__":
    main()
