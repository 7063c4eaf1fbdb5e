"""Comparison of results with the values published in the paper, as Markdown and as CSV.

One compared value is one measure of one system at one total budget: utility, or ε spent in a scope.
Each is a bar of the paper's figures 3 and 4. With several seeds, the table shows mean and range.
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

#: Columns of the CSV file: the run, the measure, and statistics of the run.
COLUMNS = (
    *("scenario", "total", "system", "strategy", "seed", "parameters", "profile"),
    *("measure", "value", "budget", "paper"),
    *("rules", "kept", "accepted", "seconds", "slowest-round", "memory-mb"),
)


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """Values of one measure by seed, the published value (`paper`), and the budget."""

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
        """Return the mean over the seeds."""
        return mean(self.values)

    @property
    def deviation(self) -> float | None:
        """Return the relative difference from the published value; positive if above it."""
        return None if self.paper is None else self.value / self.paper - 1

    @property
    def exceeds(self) -> bool:
        """Return whether a run spent more than the policy allows."""
        return self.budget is not None and max(self.values) > self.budget


def compare_with_paper(results: Sequence[EvaluationResult]) -> list[ComparedValue]:
    """Group results by measure and add the published values, in the order of the figures."""
    grouped: dict[tuple[str, str, str, int, str], list[EvaluationResult]] = {}
    for result in results:
        run = result.run
        for measure in (UTILITY, *result.spent):
            key = run.scenario, run.system, measure, run.total, run.strategy
            grouped.setdefault(key, []).append(result)
    return sorted((_compare(key, group) for key, group in grouped.items()), key=_sort_key)


def _compare(
    key: tuple[str, str, str, int, str], results: Sequence[EvaluationResult]
) -> ComparedValue:
    scenario, system, measure, total, strategy = key
    values = tuple(r.utility if measure == UTILITY else r.spent[measure] for r in results)
    budget = None if measure == UTILITY else results[0].budgets[measure]
    paper = published_value(scenario, system, measure, total)
    return ComparedValue(scenario, system, measure, total, strategy, values, paper, budget)


def _sort_key(entry: ComparedValue) -> tuple[Any, ...]:
    names = list(SCENARIOS)
    return names.index(entry.scenario), SYSTEMS.index(entry.system), entry.measure != UTILITY


def published_value(scenario: str, system: str, measure: str, total: int) -> float | None:
    """Return the value that the paper reports; None if it reports none."""
    published = _load_published()
    values = published.get(scenario, {}).get(system, {}).get(measure)
    if values is None or total not in published["totals"]:
        return None
    value: float | None = values[published["totals"].index(total)]
    return value


@lru_cache(maxsize=1)
def _load_published() -> Mapping[str, Any]:
    text = (FILES / "data" / "published.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def format_markdown(compared: Sequence[ComparedValue]) -> str:
    """Format one table per scenario, with one row for the paper and one per strategy."""
    parts = []
    for scenario in SCENARIOS.values():
        entries = [entry for entry in compared if entry.scenario == scenario.name]
        if entries:
            totals = sorted({entry.total for entry in entries})
            heading = "".join(f" ε_t {total} |" for total in totals)
            lines = [f"### {scenario.name}: {scenario.title}", ""]
            lines += [f"| Measure | Source |{heading}", "|---|---|" + "---|" * len(totals)]
            lines += list(_table_rows(entries, totals))
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _table_rows(compared: Sequence[ComparedValue], totals: Sequence[int]) -> Iterator[str]:
    by_row: dict[tuple[str, str], dict[tuple[str, int], ComparedValue]] = {}
    for entry in compared:
        by_row.setdefault((entry.system, entry.measure), {})[entry.strategy, entry.total] = entry
    for (system, measure), entries in by_row.items():
        if measure == UTILITY:
            title = f"{system}: utility (millions)"
        else:
            title = f"{system}: ε spent ({measure})"
        papers = [
            next((b.paper for (_, t), b in entries.items() if t == total), None) for total in totals
        ]
        if any(paper is not None for paper in papers):
            yield _table_row(
                title, "paper", ("–" if p is None else _format_value(p, measure) for p in papers)
            )
            title = ""
        for strategy in dict.fromkeys(strategy for strategy, _ in entries):
            row = [entries.get((strategy, total)) for total in totals]
            yield _table_row(
                title, strategy, ("" if entry is None else _format_cell(entry) for entry in row)
            )
            title = ""


def _table_row(title: str, source: str, cells: Iterator[str]) -> str:
    return f"| {title} | {source} | {' | '.join(cells)} |"


def _format_cell(entry: ComparedValue) -> str:
    text = _format_value(entry.value, entry.measure)
    if len(entry.values) > 1:
        ends = (_format_value(end, entry.measure) for end in (min(entry.values), max(entry.values)))
        text += f" ({'–'.join(ends)})"
    if entry.deviation is not None:
        text += f" {round(100 * entry.deviation, 1) + 0.0:+.1f} %"  # + 0.0 turns −0 into 0
    return text + (" **above budget**" if entry.exceeds else "")


def _format_value(value: float, measure: str) -> str:
    return f"{value / MILLION:.3f}" if measure == UTILITY else f"{value:.2f}"


def format_csv(results: Sequence[EvaluationResult]) -> str:
    """Format the results as CSV, one row per run and measure."""
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
            budget = result.budgets.get(measure, "")
            columns = [measure, value, budget, "" if paper is None else paper]
            table.writerow([*before, *columns, *after])
    return text.getvalue()
