"""Time to compile policies of several sizes, and to match a mechanism.

Run `python benchmarks/compile.py`. It prints one row per size. Times are the best of a few runs,
because machines are noisy. Memory is the growth of the peak memory of a process; each size runs in
a separate process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

_BY_RISK = "{low: {epsilon: 20}, medium: {epsilon: 9}, high: {epsilon: 3}}"
_TIGHT = "{low: {epsilon: 1}, medium: {epsilon: 1}, high: {epsilon: 1}}"


@dataclass(frozen=True)
class Size:
    """Number of elements of each kind in a policy set."""

    attributes: int
    categories: int = 100
    levels: int = 3
    extensions: int = 3
    settings: int = 3
    units: int = 4
    budgets: str = _BY_RISK


SIZES = {
    "paper's scope policy": Size(150, 10, extensions=0, units=1),
    "paper's, three contexts of three": Size(150, 10, units=1),
    "large": Size(1000, units=3),
    "100,000 kept": Size(3600, units=1, budgets=_TIGHT),
    "quarter of a million": Size(2000),
    "half a million": Size(4000),
    "a million": Size(8900),
}

_UNITS = {
    "user": "{}",
    "user-month": "{period: month}",
    "user-week": "{period: week}",
    "user-day": "{period: day}",
}


def policy_text(size: Size) -> str:
    """Return the policy set of a size; the same text in every run."""
    units = list(_UNITS)[: size.units]
    listed = ", ".join(units)
    return "\n".join(
        [
            "dpolicy: 1",
            "accounting: {delta: 1e-7, relation: change}",
            "units:",
            *(f"  {name}: {_UNITS[name]}" for name in units),
            *_schema(size),
            "policies:",
            f"  - {{name: global, kind: custom, when: always, units: [{listed}], "
            "budget: {epsilon: 20}}",
            f"  - {{name: attr, kind: attribute, units: [{listed}], budgets: {size.budgets}}}",
            f"  - {{name: cat, kind: category, units: [{listed}], budgets: {_BY_RISK}, "
            "levels: {strong: {times: 1.5}, weak: {times: 2}}}",
            *(line for number in range(size.extensions) for line in _extension(number, size)),
            "",
        ]
    )


def _schema(size: Size) -> Iterator[str]:
    rng = random.Random(1)
    names = ("member", "strong", "weak")[: size.levels]
    yield "schema:"
    yield "  categories:"
    for number in range(size.categories):
        yield f"    c{number}: {{risk: {rng.choice(('low', 'medium', 'high'))}}}"
    yield "  attributes:"
    for number in range(size.attributes):
        risk = rng.choices(("low", "medium", "high"), (8, 1, 1))[0]
        ties = rng.sample(range(size.categories), min(size.categories, rng.randint(1, 4)))
        first_level, second_level = sorted(rng.sample(range(len(names)), 2))
        other_categories = ", ".join(f"c{tie}" for tie in ties[1:])
        memberships = (
            f"{names[first_level]}: [c{ties[0]}], {names[second_level]}: [{other_categories}]"
        )
        yield f"    a{number}: {{risk: {risk}, {memberships}}}"
    yield "  labels:"
    values = ", ".join(f"v{setting}" for setting in range(size.settings))
    for number in range(max(size.extensions, 1)):
        yield f"    l{number}: {{values: [{values}], default: v0}}"


def _extension(number: int, size: Size) -> Iterator[str]:
    yield f"  - name: e{number}"
    yield "    kind: extension"
    yield "    settings:"
    for setting in range(size.settings - 1):
        within = ", ".join(f'"v{s}"' for s in range(setting + 1))
        when = f"'labels.l{number} in [{within}]'"
        yield f"      - {{name: s{setting}, when: {when}, budget: {{times: {1 + setting / 2}}}}}"
    yield f"      - {{name: any, when: always, budget: {{times: {size.settings}}}}}"


def time_compilation(text: str) -> tuple[float, CompiledPolicy]:
    """Return the seconds of one compilation, and its result."""
    start = time.perf_counter()
    compiled = compile_policy([Source("policy.yaml", text)])
    return time.perf_counter() - start, compiled


def measure(name: str, repetitions: int) -> dict[str, object]:
    """Measure one row of the table in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = policy_text(SIZES[name])
    runs = [time_compilation(text) for _ in range(repetitions)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled = runs[-1][1]
    return {
        "policy": name,
        "rules": compiled.rule_count,
        "kept": compiled.kept_count,
        "seconds": min(seconds for seconds, _ in runs),
        "memory": (after - before) / 1024,
        **measure_matching(compiled),
    }


def measure_matching(compiled: CompiledPolicy) -> dict[str, float]:
    """Return the µs to match ten attributes (cold, warm) and the mean number of matched rules."""
    rng = random.Random(2)
    names = sorted(compiled.checked_policy_set.vocabulary.schema.attributes)
    labels = dict.fromkeys(compiled.checked_policy_set.vocabulary.schema.labels, "v0")
    inputs = [PredicateInput(tuple(sorted(rng.sample(names, 10))), labels) for _ in range(200)]
    index = compiled.cumulative.index
    cold, warm = (
        _mean_microseconds(index.matching_rules, inputs),
        _mean_microseconds(index.matching_rules, inputs),
    )
    matched = sum(len(index.matching_rules(predicate_input)) for predicate_input in inputs) / len(
        inputs
    )
    return {"cold": cold, "warm": warm, "matched": matched}


def _mean_microseconds(
    function: Callable[[PredicateInput], object], inputs: list[PredicateInput]
) -> float:
    start = time.perf_counter()
    for predicate_input in inputs:
        function(predicate_input)
    return (time.perf_counter() - start) / len(inputs) * 1e6


def measure_all(repetitions: int) -> Iterator[dict[str, object]]:
    """Measure each size in a separate process."""
    for name in SIZES:
        call = [sys.executable, __file__, "--one", name, "--repetitions", str(repetitions)]
        yield json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", choices=list(SIZES))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.repetitions)))
        return
    columns = (
        ("rules", 10),
        ("kept", 9),
        ("seconds", 9),
        ("MB", 7),
        ("µs match", 10),
        ("matched", 8),
    )
    print(f"{'policy':<34}" + "".join(f"{column:>{width}}" for column, width in columns))
    for row in measure_all(options.repetitions):
        print(
            f"{row['policy']:<34}{row['rules']:>10,}{row['kept']:>9,}{row['seconds']:>9.3f}"
            f"{row['memory']:>7.0f}{row['warm']:>10.0f}{row['matched']:>8.0f}"
        )


if __name__ == "__main__":
    main()
