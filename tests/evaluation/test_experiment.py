"""Runs of the evaluation on small workloads, and the output of their results."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from tests.evaluation.sample_workload import workload

from dpolicy.allocation.scenario_file import load_scenario, simulate_scenario
from dpolicy.balances.partition_space import ALL_TIME
from dpolicy.cli.main import exit_code
from dpolicy.errors import OperationRejected
from dpolicy.evaluation import run_export
from dpolicy.evaluation.comparison import (
    ComparedValue,
    compare_with_paper,
    format_csv,
    format_markdown,
    published_value,
)
from dpolicy.evaluation.experiment import (
    BASELINE,
    OURS,
    PUBLISHED,
    SCENARIOS,
    SYSTEMS,
    EvaluationResult,
    EvaluationRun,
    cohorts_with_full_life,
    evaluate_workload,
    policy_for,
    run_all,
    workload_for,
)
from dpolicy.evaluation.figures import draw
from dpolicy.evaluation.s3_variants import coarse_block
from dpolicy.evaluation.workload import ROUNDS, SCHEDULE, TOTALS, bundled_workload
from dpolicy.privacy.reserves.ladder import LADDER


def result(run: EvaluationRun, seed: int = 0) -> EvaluationResult:
    return evaluate_workload(run, workload(SCENARIOS[run.scenario].workload, seed, count=150))


@pytest.fixture(scope="module")
def results() -> list[EvaluationResult]:
    return [
        result(EvaluationRun(scenario, total, system, strategy))
        for scenario in SCENARIOS
        for total in (3, 10)
        for system in SYSTEMS
        for strategy in ("efficient", "first-come")
    ]


def test_no_budget_of_the_policy_is_exceeded(results: list[EvaluationResult]) -> None:
    for entry in results:
        if entry.run.system == OURS:
            assert not [m for m in entry.spent if entry.exceeds(m)], entry.run
    assert any(entry.exceeds(m) for entry in results for m in entry.spent)


def test_the_baseline_exceeds_the_tighter_budget(results: list[EvaluationResult]) -> None:
    (baseline,) = (r for r in results if r.run == EvaluationRun("S1", 10, BASELINE, "efficient"))
    assert baseline.exceeds("standard") and baseline.rules == baseline.kept == 1


def test_utility_is_positive_and_within_its_bound(results: list[EvaluationResult]) -> None:
    for entry in results:
        assert 0 < entry.utility <= entry.bound + 1e-6
        assert entry.accepted > 0 and entry.memory > 0
        assert 0 <= entry.slowest <= entry.seconds


def test_rules_before_and_after_pruning(results: list[EvaluationResult]) -> None:
    counts = {r.run.scenario: (r.rules, r.kept) for r in results if r.run.system == OURS}
    assert counts["S1"] == (2, 2) and counts["S3"] == (2, 2)
    assert counts["whole"][0] == (1 + 3 + 2 * 3) * 2 * 2
    assert counts["S2"][0] == 1 + 3 + 2 * 3 > counts["S2"][1]


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("profile", ["classic", "anchored"])
def test_there_is_a_whole_policy_set_for_every_total(total: int, profile: str) -> None:
    run = EvaluationRun("whole", total, OURS, "efficient", profile=profile)
    policy = policy_for(run, workload("whole"))
    assert policy.rule_count == 40 and not policy.warnings


@pytest.mark.parametrize(("profile", "has_reserves"), [("classic", False), ("anchored", True)])
def test_runs_use_the_profile_that_they_name(profile: str, has_reserves: bool) -> None:
    """The paper's accounting is `classic`, which is not the default of policies any more."""
    policy = policy_for(
        EvaluationRun("S2", 10, OURS, "efficient", profile=profile), workload("scope")
    )
    assert {rule.base.profile.value for rule, _ in policy.all_rules} == {profile}
    certificates = {
        certificate
        for rule, _ in policy.all_rules
        for clause in rule.bound.clauses
        for certificate, _ in clause
    }
    assert bool(certificates & {*LADDER}) is has_reserves


def test_runs_are_classic_unless_they_name_another_profile() -> None:
    assert EvaluationRun("S1", 10, OURS, "efficient").profile == "classic"


def test_measures_are_those_of_the_paper(results: list[EvaluationResult]) -> None:
    by_scenario = {r.run.scenario: set(r.spent) for r in results}
    assert by_scenario == {
        "S1": {"standard", "total"},
        "S2": {"member", "strong", "weak", "attribute"},
        "S3": {"month"},
        "whole": {"standard", "total", "month", "member", "strong", "weak", "attribute"},
    }


def test_wider_levels_cost_no_less(results: list[EvaluationResult]) -> None:
    for entry in results:
        if entry.run.scenario == "S2":
            assert entry.spent["member"] <= entry.spent["strong"] <= entry.spent["weak"]


def test_coarse_blocks_of_s3_are_tighter() -> None:
    coarse = result(EvaluationRun("S3", 20, OURS, "efficient"))
    fine = result(EvaluationRun("S3", 20, OURS, "efficient", as_run=False))
    assert coarse.utility < fine.utility


def test_a_cohort_keeps_past_four_months_and_future() -> None:
    cohort = 11  # joins in month 104
    blocks = [coarse_block(cohort, month) for month in range(100, 112)]
    assert blocks[0] == blocks[3] and blocks[8] == blocks[11]
    assert len(set(blocks)) == 6
    starts = sorted(set(blocks))
    assert all(before[1] == after[0] for before, after in pairwise(starts))
    assert (starts[0][0], starts[-1][1]) == ALL_TIME


def test_cohorts_with_a_full_life() -> None:
    assert SCHEDULE.rotation is not None
    assert cohorts_with_full_life(ROUNDS, SCHEDULE.rotation) == range(11, 20)


def test_the_bundled_workloads_are_complete() -> None:
    counts = {name: len(bundled_workload(name).requests) for name in ("context", "scope", "time")}
    assert counts == {"context": 10017, "scope": 10157, "time": 10119}


def test_a_run_of_few_rounds_has_few_requests() -> None:
    requests = workload_for(EvaluationRun("S3", 3, OURS, "efficient", rounds=2)).requests
    assert {request["round"] for request in requests} == {11, 12}


def test_another_share_of_timed_requests() -> None:
    for share in (0.25, 0.75):
        run = EvaluationRun("S3", 3, OURS, "efficient", timed=share)
        requests = workload_for(run).requests
        timed = sum("a1" in request["attributes"] for request in requests) / len(requests)
        assert share - 0.02 < timed < share + 0.02


def test_every_published_utility_is_available() -> None:
    for scenario in PUBLISHED:
        for system in SYSTEMS:
            for total in TOTALS:
                assert published_value(scenario, system, "utility", total) is not None
    assert published_value("S2", OURS, "weak", 3) is None
    assert published_value("S1", OURS, "utility", 4) is None


def test_the_table_of_compared_values(results: list[EvaluationResult]) -> None:
    compared = compare_with_paper(results)
    text = format_markdown(compared)
    assert text.startswith(
        "### S1: Context\n\n| Measure | Source | ε_t 3 | ε_t 10 |\n|---|---|---|---|\n"
    )
    assert "| DPolicy: utility (millions) | paper | 1.400 | 3.470 |" in text
    assert "| Cohere: ε spent (standard) | paper | 2.80 | 8.20 |" in text
    assert " **above budget**" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {5}


def test_several_seeds_have_mean_and_range() -> None:
    run = EvaluationRun("S1", 10, OURS, "efficient")
    seeds = [replace(result(run, seed), run=replace(run, seed=seed)) for seed in range(3)]
    (value,) = (b for b in compare_with_paper(seeds) if b.measure == "utility")
    assert len(value.values) == 3 and min(value.values) < value.value < max(value.values)
    low, high = min(value.values) / 1e6, max(value.values) / 1e6
    assert f"({low:.3f}–{high:.3f})" in format_markdown([value])


def test_a_value_exceeds_the_budget_if_one_seed_does() -> None:
    value = ComparedValue("S1", OURS, "standard", 3, "efficient", (1.0, 1.8), 1.7, 1.7)
    assert value.exceeds and value.deviation == pytest.approx(1.4 / 1.7 - 1)
    assert not replace(value, values=(1.7,)).exceeds


def test_csv_has_a_row_for_each_measure(results: list[EvaluationResult]) -> None:
    rows = list(csv.DictReader(StringIO(format_csv(results))))
    assert len(rows) == sum(1 + len(entry.spent) for entry in results)
    assert {row["measure"] for row in rows} >= {"utility", "standard", "member", "month"}


def test_figures_are_reproducible(results: list[EvaluationResult], tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        paths = draw(compare_with_paper(results), tmp_path / folder)
        names = {path.name for path in paths}
        assert names == {f"figure-{n}.{kind}" for n in (3, 4) for kind in ("png", "svg")}
    for path in paths:
        assert path.read_bytes() == (tmp_path / "first" / path.name).read_bytes()
    assert (tmp_path / "first" / "figure-3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_exported_files_reproduce_the_run(
    scenario: str, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = EvaluationRun(scenario, 5, system, "efficient", as_run=False)
    monkeypatch.setattr(
        run_export,
        "workload_for",
        lambda run: workload(SCENARIOS[run.scenario].workload, count=150),
    )
    run_export.export_run(run, tmp_path)
    outcomes = list(simulate_scenario(load_scenario(tmp_path / "scenario.yaml"))[1])
    expected = result(run)
    assert sum(outcome.utility for outcome in outcomes) == expected.utility
    assert sum(len(outcome.selected) for outcome in outcomes) == expected.accepted


def test_a_worker_process_gives_the_same_result() -> None:
    runs = [EvaluationRun("S1", total, BASELINE, "first-come", rounds=1) for total in (3, 5)]
    by_run = {r.run: r for r in run_all(runs, 1)}
    assert set(by_run) == set(runs)
    expected = evaluate_workload(runs[0], workload_for(runs[0]))
    first = by_run[runs[0]]
    assert (first.utility, first.spent) == (expected.utility, expected.spent)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["paper", "--quick", "--scenario", "S1", "--rounds", "1", "--processes", "1"]
    assert exit_code([*quick, "--format", "json", "--out", str(tmp_path / "out")]) == 0
    out, err = capfd.readouterr()
    runs = json.loads(out)["runs"]
    assert [entry["run"]["system"] for entry in runs] == [OURS, BASELINE]
    assert {entry["run"]["total"] for entry in runs} == {10}
    assert "figure-3.svg" in err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"bars.md", "runs.csv", "figure-3.png", "figure-3.svg"}


def test_the_command_exports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "S3", "--total", "5", "--rounds", "1", "--export", str(tmp_path)]
    assert exit_code(["paper", *arguments]) == 0
    out = capfd.readouterr().out
    assert out.splitlines() == [
        str(tmp_path / name / "scenario.yaml") for name in ("S3-5-cohere", "S3-5-dpolicy")
    ]
    assert exit_code(["check", str(tmp_path / "S3-5-dpolicy" / "policy")]) == 0
    assert exit_code(["simulate", out.splitlines()[1], "--strategy", "first-come"]) == 0


def test_without_a_solver_price_is_omitted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpolicy.cli.commands.allocation.paper.is_installed", lambda: False)
    arguments = ["--scenario", "S1", "--total", "3", "--rounds", "1", "--export", str(tmp_path)]
    assert exit_code(["paper", *arguments]) == 0
    assert "the strategy `price` needs HiGHS" in capfd.readouterr().err


def test_without_matplotlib_the_error_names_the_package(
    results: list[EvaluationResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpolicy.evaluation.figures.find_spec", lambda _: None)
    with pytest.raises(OperationRejected, match=r"dpolicy\[plot\]"):
        draw(compare_with_paper(results), tmp_path)
