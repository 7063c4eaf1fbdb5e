"""Line of the table of goals: what was measured, its value, the goal, and whether it is met."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: The width of the first column.
_WIDTH = 74


@dataclass(frozen=True)
class Options:
    """What a run measures, and for how long.

    `seconds` is the duration of one measurement at a rate, and `rounds` the number of repetitions
    of which the best counts. `contents` is the number of different contents that `apply` folds;
    `events` and `verified` are the lengths of ledgers that are opened and verified. `before` is
    the source folder of an earlier version, whose server is measured in the same run.
    """

    folder: Path
    seconds: float
    rounds: int
    contents: int
    events: int
    verified: int
    before: str | None


@dataclass(frozen=True)
class Line:
    """A measured value. A line without a goal is there for comparison; NaN means not available."""

    what: str
    value: float
    goal: float | None = None
    is_minimum: bool = False
    unit: str = ""

    @property
    def verdict(self) -> str:
        """`pass`, `miss`, or a dash if the line has no goal."""
        if self.goal is None:
            return "–"
        is_met = self.value >= self.goal if self.is_minimum else self.value <= self.goal
        return "pass" if is_met else "miss"

    def __str__(self) -> str:
        sign = "≥" if self.is_minimum else "≤"
        goal = "" if self.goal is None else f"{sign} {_format_value(self.goal, self.unit)}"
        value = _format_value(self.value, self.unit)
        return f"| {self.what:<{_WIDTH}} | {value:>12} | {goal:>10} | {self.verdict:<4} |"


def print_head() -> None:
    """Print the first two rows of the table."""
    print(f"| {'':<{_WIDTH}} | {'value':>12} | {'goal':>10} | {'':<4} |")
    print(f"|{'-' * (_WIDTH + 2)}|{'-' * 13}:|{'-' * 11}:|{'-' * 6}|", flush=True)


def _format_value(value: float, unit: str) -> str:
    if math.isnan(value):
        return "missing"
    if value >= 100:
        text = f"{value:,.0f}"
    elif value == int(value):
        text = f"{value:.0f}"
    else:
        text = f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
    return f"{text} {unit}".rstrip()


def measure_cpu(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, in all threads of this process."""
    start = time.process_time()
    call()
    return time.process_time() - start
