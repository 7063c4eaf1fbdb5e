"""Results and what the paper reports → its bars, side by side; as a Markdown table and as CSV.

A bar is one measure of one system at one total budget: utility, or ε spent in a scope. With several
seeds it has several values, and the table tells their mean and their ends.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from statistics import mean
from typing import Any

from dpolicy.evaluation.experiment import SCENARIOS, SYSTEMS, EvaluationResult
from dpolicy.evaluation.workload import FILES

UTILITY = "utility"
MILLION = 1_000_000

#: Of the comma separated values: the run, then the measure, then what is told of every run.
COLUMNS = (
    *("scenario", "total", "system", "strategy", "seed", "parameters", "profile"),
    *("measure", "value", "budget", "paper"),
    *("rules", "kept", "accepted", "seconds", "slowest-round", "memory-mb"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: the values of our runs by seed, the published one, and the budget, if any."""

    scenario: str
    system: str
    measure: str
    total: int
    strategy: str
    values: tuple[float, ...]
    paper: float | None
    budget: float | None

    @property
    def value(self) -> float:
        """The mean over the seeds."""
        return mean(self.values)

    @property
    def deviation(self) -> float | None:
        """How far we are above the paper, as a share of its value."""
        return None if self.paper is None else self.value / self.paper - 1

    @property
    def exceeds(self) -> bool:
        """Whether some run spent more than the policy allows."""
        return self.budget is not None and max(self.values) > self.budget


def comparison_bars(results: Sequence[EvaluationResult]) -> list[Bar]:
    """The bars of some results, in the order of the figures."""
    grouped: dict[tuple[str, str, str, int, str], list[EvaluationResult]] = {}
    for result in results:
        run = result.run
        for measure in (UTILITY, *result.spent):
            key = run.scenario, run.system, measure, run.total, run.strategy
            grouped.setdefault(key, []).append(result)
    return sorted((_bar(key, found) for key, found in grouped.items()), key=_place)


def _bar(key: tuple[str, str, str, int, str], results: Sequence[EvaluationResult]) -> Bar:
    scenario, system, measure, total, strategy = key
    values = tuple(r.utility if measure == UTILITY else r.spent[measure] for r in results)
    budget = None if measure == UTILITY else results[0].budgets[measure]
    paper = published_value(scenario, system, measure, total)
    return Bar(scenario, system, measure, total, strategy, values, paper, budget)


def _place(bar: Bar) -> tuple[Any, ...]:
    names = list(SCENARIOS)
    return names.index(bar.scenario), SYSTEMS.index(bar.system), bar.measure != UTILITY


def published_value(scenario: str, system: str, measure: str, total: int) -> float | None:
    """What the paper reports; None where it does not."""
    known = _published()
    values = known.get(scenario, {}).get(system, {}).get(measure)
    if values is None or total not in known["totals"]:
        return None
    found: float | None = values[known["totals"].index(total)]
    return found


@lru_cache(maxsize=1)
def _published() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((FILES / "data" / "published.json").read_text("utf-8"))
    return found


def format_markdown(bars: Sequence[Bar]) -> str:
    """A table for each scenario: a line for the paper and one for each strategy."""
    parts = []
    for scenario in SCENARIOS.values():
        its = [bar for bar in bars if bar.scenario == scenario.name]
        if its:
            totals = sorted({bar.total for bar in its})
            heading = "".join(f" ε_t {total} |" for total in totals)
            lines = [f"### {scenario.name}: {scenario.title}", ""]
            lines += [f"| | |{heading}", "|---|---|" + "---|" * len(totals)]
            lines += list(_lines(its, totals))
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _lines(bars: Sequence[Bar], totals: Sequence[int]) -> Iterator[str]:
    by_row: dict[tuple[str, str], dict[tuple[str, int], Bar]] = {}
    for bar in bars:
        by_row.setdefault((bar.system, bar.measure), {})[bar.strategy, bar.total] = bar
    for (system, measure), its in by_row.items():
        title = f"{system} {measure}" + (", M" if measure == UTILITY else ", ε")
        papers = [
            next((b.paper for (_, t), b in its.items() if t == total), None) for total in totals
        ]
        if any(paper is not None for paper in papers):
            yield _line(title, "paper", ("–" if p is None else _shown(p, measure) for p in papers))
            title = ""
        for strategy in dict.fromkeys(strategy for strategy, _ in its):
            found = [its.get((strategy, total)) for total in totals]
            yield _line(title, strategy, ("" if bar is None else _cell(bar) for bar in found))
            title = ""


def _line(title: str, who: str, cells: Iterator[str]) -> str:
    return f"| {title} | {who} | {' | '.join(cells)} |"


def _cell(bar: Bar) -> str:
    text = _shown(bar.value, bar.measure)
    if len(bar.values) > 1:
        ends = (_shown(end, bar.measure) for end in (min(bar.values), max(bar.values)))
        text += f" ({'–'.join(ends)})"
    if bar.deviation is not None:
        text += f" {round(100 * bar.deviation, 1) + 0.0:+.1f} %"  # no minus before a zero
    return text + (" **above**" if bar.exceeds else "")


def _shown(value: float, measure: str) -> str:
    return f"{value / MILLION:.3f}" if measure == UTILITY else f"{value:.2f}"


def format_csv(results: Sequence[EvaluationResult]) -> str:
    """A line for every measure of every run."""
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for result in results:
        run = result.run
        parameters = "as-run" if run.as_run else "as-written"
        seed = "" if run.seed is None else run.seed
        before = [run.scenario, run.total, run.system, run.strategy, seed, parameters, run.profile]
        after = [result.rules, result.kept, result.accepted, f"{result.seconds:.2f}"]
        after += [f"{result.slowest:.3f}", result.memory]
        for measure, value in {UTILITY: result.utility, **result.spent}.items():
            paper = published_value(run.scenario, run.system, measure, run.total)
            told = [measure, value, result.budgets.get(measure, ""), "" if paper is None else paper]
            table.writerow([*before, *told, *after])
    return text.getvalue()
