"""How long it takes to compile policies of several sizes, and to match a mechanism.

Run as `python benchmarks/compile.py`; prints one table a subject. The best of a few runs is shown,
since machines are noisy; memory is the growth of the process's peak, each size in a process of its
own.
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
    """How many of everything a policy set has."""

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
    """A policy set of the given size, the same every time."""
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
    chosen = random.Random(1)
    names = ("member", "strong", "weak")[: size.levels]
    yield "schema:"
    yield "  categories:"
    for number in range(size.categories):
        yield f"    c{number}: {{risk: {chosen.choice(('low', 'medium', 'high'))}}}"
    yield "  attributes:"
    for number in range(size.attributes):
        risk = chosen.choices(("low", "medium", "high"), (8, 1, 1))[0]
        ties = chosen.sample(range(size.categories), min(size.categories, chosen.randint(1, 4)))
        closer, looser = sorted(chosen.sample(range(len(names)), 2))
        more = ", ".join(f"c{tie}" for tie in ties[1:])
        said = f"{names[closer]}: [c{ties[0]}], {names[looser]}: [{more}]"
        yield f"    a{number}: {{risk: {risk}, {said}}}"
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


def timed_compile(text: str) -> tuple[float, CompiledPolicy]:
    """Seconds for one compilation, and its result."""
    start = time.perf_counter()
    compiled = compile_policy([Source("policy.yaml", text)])
    return time.perf_counter() - start, compiled


def measure(name: str, repetitions: int) -> dict[str, object]:
    """One row of the table, measured in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = policy_text(SIZES[name])
    runs = [timed_compile(text) for _ in range(repetitions)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled = runs[-1][1]
    return {
        "policy": name,
        "rules": compiled.rule_count,
        "kept": compiled.kept_count,
        "seconds": min(seconds for seconds, _ in runs),
        "memory": (after - before) / 1024,
        **matching(compiled),
    }


def matching(compiled: CompiledPolicy) -> dict[str, float]:
    """Microseconds to match a mechanism of ten attributes, cold and warm, and the answer's size."""
    chosen = random.Random(2)
    names = sorted(compiled.checked_policy_set.vocabulary.schema.attributes)
    labels = dict.fromkeys(compiled.checked_policy_set.vocabulary.schema.labels, "v0")
    facts = [PredicateInput(tuple(sorted(chosen.sample(names, 10))), labels) for _ in range(200)]
    index = compiled.cumulative.index
    cold, warm = _lap(index.matching_rules, facts), _lap(index.matching_rules, facts)
    answer = sum(len(index.matching_rules(f)) for f in facts) / len(facts)
    return {"cold": cold, "warm": warm, "answer": answer}


def _lap(function: Callable[[PredicateInput], object], facts: list[PredicateInput]) -> float:
    start = time.perf_counter()
    for fact in facts:
        function(fact)
    return (time.perf_counter() - start) / len(facts) * 1e6


def rows(repetitions: int) -> Iterator[dict[str, object]]:
    """Each size in a process of its own."""
    for name in SIZES:
        call = [sys.executable, __file__, "--one", name, "--repetitions", str(repetitions)]
        yield json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", choices=list(SIZES))
    parser.add_argument("--repetitions", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one, chosen.repetitions)))
        return
    heads = ("rules", 10), ("kept", 9), ("seconds", 9), ("MB", 7), ("µs match", 10), ("answer", 8)
    print(f"{'policy':<34}" + "".join(f"{head:>{width}}" for head, width in heads))
    for row in rows(chosen.repetitions):
        print(
            f"{row['policy']:<34}{row['rules']:>10,}{row['kept']:>9,}{row['seconds']:>9.3f}"
            f"{row['memory']:>7.0f}{row['warm']:>10.0f}{row['answer']:>8.0f}"
        )


if __name__ == "__main__":
    main()
