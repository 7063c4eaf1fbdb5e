"""CPU time of the kernel over rules without segments: compiled, in NumPy, and their ratio.

The rules are far from their limits, so that every row is read. A column per certificate and δ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpolicy.balances.kernel import numpy_kernel
from dpolicy.balances.kernel.kernel import load_compiled_kernel
from dpolicy.privacy.loss import INFINITE

SHAPES = ((4, 12), (20, 12), (100, 12), (1000, 12))
RULES = 10_000


def best_microseconds(call: Callable[[], object], repeat: int, rounds: int = 15) -> float:
    """Return the CPU time of one call, the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        for _ in range(repeat):
            call()
        best = min(best, (time.thread_time_ns() - start) / repeat / 1000)
    return best


def rule_arrays(rules: int, width: int) -> tuple[Any, ...]:
    """Return the arguments of `RuleRows`: every third rule requires all of its certificates."""
    rng = np.random.default_rng(1)
    cost = rng.integers(0, 10**9, (rules, width))
    maximum = rng.integers(10**14, 10**15, (rules, width))
    maximum[:, 0] = INFINITE
    require_all = np.arange(rules) % 3 == 0
    maximum[~require_all, 0] = -1
    is_displayed = np.ones((rules, width), np.bool_)
    is_displayed[:, -1] = False
    numbers = np.sort(rng.choice(RULES, rules, replace=False)).astype(np.intp)
    reserves = np.full(width, -1, np.int64)
    return numbers, cost, maximum, require_all, cost // 2, is_displayed, reserves


def main() -> None:
    """Print a line for each shape and operation."""
    compiled = load_compiled_kernel()
    if compiled is None:
        raise SystemExit("the compiled kernel is not built")
    print(f"{'rules':>6} {'columns':>8} {'':>8} {'NumPy µs':>10} {'compiled µs':>12} {'ratio':>7}")
    for rules, width in SHAPES:
        arguments = rule_arrays(rules, width)
        finite = np.zeros((RULES, width), np.int64)
        infinite = np.zeros((RULES, width), np.int32)
        both = [module.RuleRows(*arguments) for module in (numpy_kernel, compiled)]
        operations: dict[str, list[Callable[[], object]]] = {
            "build": [partial(module.RuleRows, *arguments) for module in (numpy_kernel, compiled)],
            "decide": [partial(rows.decide, finite, infinite) for rows in both],
            "charge": [partial(rows.charge, finite, infinite) for rows in both],
        }
        for name, (slow, fast) in operations.items():
            numpy_time = best_microseconds(slow, 200)
            compiled_time = best_microseconds(fast, 2000)
            print(
                f"{rules:6} {width:8} {name:>8} {numpy_time:10.1f} {compiled_time:12.2f} "
                f"{numpy_time / compiled_time:7.1f}"
            )


if __name__ == "__main__":
    main()
