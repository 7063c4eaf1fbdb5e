"""CPU time to read a release that was never read before, and to start the command line.

It prints the strict reader, the quick reader of mappings and of JSON, and the resolution to rows of
costs, in microseconds and as ratios to the strict reader of the same run; then the CPU time of
`dpolicy --help` and of imports as ratios to `import click`. Machines differ, ratios hardly do.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.releases.python.quick_reader import read_json, read_plain
from dpolicy.releases.release_parser import parse_plain_strictly
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-day: {period: day}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}, age: {risk: low}}
  labels: {purpose: {values: [ads, research], default: ads}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 3000}}
  - {name: day, kind: custom, when: always, unit: user-day, budget: {epsilon: 1000}}
"""

#: Parameters of each kind of mechanism, from a random number between 0 and 1.
KINDS: dict[str, Callable[[float], dict[str, Any]]] = {
    "gaussian": lambda x: {"kind": "gaussian", "sigma": 100 + x, "sensitivity": 2},
    "laplace": lambda x: {"kind": "laplace", "scale": 100 + x},
    "declared ε": lambda x: {"kind": "declared", "epsilon": 0.01 + x},
    "declared ρ": lambda x: {"kind": "declared", "rho": 0.01 + x},
    "declared ε, δ": lambda x: {"kind": "declared", "epsilon": 0.01 + x, "delta": 1e-12},
}

#: Releases that are timed together, and how often; the quickest time counts.
BATCH, BATCHES = 25, 40

#: Program that runs `dpolicy` with its arguments.
RUN = "import sys; from dpolicy.cli.main import run; run(sys.argv[1:])"


def bodies(kind: str, rng: random.Random) -> list[dict[str, Any]]:
    """Return releases with different parameters."""
    return [
        {
            "release": f"r{number}",
            "by": "ann@example.org",
            "mechanisms": [
                {
                    "name": "counts",
                    "mechanism": KINDS[kind](round(rng.random(), 6)),
                    "unit": "user",
                    "attributes": ["zip", "views"],
                    "labels": {"purpose": "ads"},
                }
            ],
        }
        for number in range(BATCH * BATCHES)
    ]


def microseconds(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Return the CPU time of one call, in the quickest batch."""
    times = []
    for first in range(0, len(items), BATCH):
        start = time.thread_time_ns()
        for item in items[first : first + BATCH]:
            work(item)
        times.append((time.thread_time_ns() - start) / BATCH / 1000)
    return min(times)


def print_reading(enforced: EnforcedPolicy) -> None:
    """Print the table of readers."""
    rng = random.Random(0)
    print(f"{'CPU µs (÷ strict)':<20}{'strict':>8}{'mapping':>16}{'JSON':>16}{'resolve':>16}")
    for kind in KINDS:
        releases = bodies(kind, rng)
        texts = [json.dumps(body).encode() for body in releases]
        read = [parse_plain_strictly(body) for body in releases]
        if [read_plain(body) for body in releases] != read:
            raise SystemExit("the quick reader did not read every release")
        strict = microseconds(parse_plain_strictly, releases)
        others = [
            microseconds(read_plain, releases),
            microseconds(read_json, texts),
            microseconds(lambda release: resolve_or_reject(release, enforced), read),
        ]
        columns = "".join(f"{value:>8.0f} ({value / strict:>4.2f})" for value in others)
        print(f"{kind:<20}{strict:>8.0f}{columns}")


def start_seconds(*arguments: str) -> float:
    """Return the least CPU time of five processes of Python with these arguments."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(times)


def print_start() -> None:
    """Print the time of starts."""
    click = start_seconds("-c", "import click")
    commands = ("policy.check", "releases.submit", "ledger.budgets")
    starts = {"dpolicy --help": ("-c", RUN, "--help")} | {
        f"import {name}": ("-c", f"import dpolicy.cli.commands.{name}") for name in commands
    }
    print(f"\n{'CPU ms (÷ import click)':<28}{click * 1000:>8.0f}")
    for name, arguments in starts.items():
        seconds = start_seconds(*arguments)
        print(f"{name:<28}{seconds * 1000:>8.0f} ({seconds / click:.1f})")


def main() -> None:
    """Print both tables."""
    print_reading(enforce(compile_policy([Source("policy.yaml", POLICY)])))
    print_start()


if __name__ == "__main__":
    main()
