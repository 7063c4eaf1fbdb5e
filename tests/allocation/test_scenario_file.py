"""Scenario files: strict parsing, and simulation of their content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpolicy.allocation.batch_file import load_batch
from dpolicy.allocation.scenario_file import load_scenario, simulate_scenario
from dpolicy.errors import OperationRejected, PolicyRejected, ReleaseRejected

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  attributes: {zip: {}}
  partitions: {cohort: {from: 0, to: 9}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
"""
SCENARIO = """\
policy: policy.yaml
requests: [requests.yaml]
rounds: {from: 1, to: 4}
cohorts: {partition: cohort, active: 2}
unlocking: {steps: 2}
strategy: first-come
timeout: 2
"""


def request_line(name: str, number: int, epsilon: float) -> str:
    mechanism = f"{{mechanism: {{kind: declared, epsilon: {epsilon}}}, attributes: [zip]}}"
    return f"- {{round: {number}, release: {name}, utility: 2, mechanisms: [{mechanism}]}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    (tmp_path / "scenario.yaml").write_text(SCENARIO, "utf-8")
    rows = [("a", 1, 0.4), ("b", 1, 0.2), ("c", 2, 0.4), ("d", 4, 0.6)]
    (tmp_path / "requests.yaml").write_text("".join(request_line(*row) for row in rows), "utf-8")
    return tmp_path


def test_a_scenario_is_simulated(folder: Path) -> None:
    outcomes = list(simulate_scenario(load_scenario(folder / "scenario.yaml"))[1])
    # Half of the budget of the newest cohort is unlocked. `a` fills cohort 1; `b` waits a round for
    # the rest and uses 0.2 of cohort 2, so `c` waits too; `d` needs more than half and never fits.
    assert [list(outcome.selected) for outcome in outcomes] == [["a"], ["b"], ["c"], []]
    assert outcomes[1].considered == 2 and outcomes[3].feasible_alone == 0
    assert json.dumps([outcome.utility for outcome in outcomes]) == "[2.0, 2.0, 2.0, 0.0]"


def test_a_seed_changes_the_order_of_arrival(folder: Path) -> None:
    scenario = load_scenario(folder / "scenario.yaml")
    first = {next(simulate_scenario(scenario, seed)[1]).selected for seed in range(8)}
    assert first == {("a",), ("b",)}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("strategy: first-come", "strategy: greedy", "P"),
        ("rounds: {from: 1, to: 4}", "rounds: {from: 1}", "P008"),
        ("timeout: 2", "timeouts: 2", "P006"),
        ("unlocking: {steps: 2}", "unlocking: {steps: 0}", "P009"),
    ],
)
def test_an_error_has_code_and_position(folder: Path, old: str, new: str, code: str) -> None:
    (folder / "scenario.yaml").write_text(SCENARIO.replace(old, new), "utf-8")
    with pytest.raises(PolicyRejected, match=rf"scenario\.yaml:\d+:\d+: error {code}"):
        load_scenario(folder / "scenario.yaml")


def test_unlocking_needs_cohorts(folder: Path) -> None:
    text = SCENARIO.replace("cohorts: {partition: cohort, active: 2}\n", "")
    (folder / "scenario.yaml").write_text(text, "utf-8")
    with pytest.raises(OperationRejected, match="add `cohorts`"):
        load_scenario(folder / "scenario.yaml")


def test_a_request_outside_the_rounds_is_rejected(folder: Path) -> None:
    (folder / "requests.yaml").write_text(request_line("late", 7, 0.1), "utf-8")
    with pytest.raises(OperationRejected, match="round 7"):
        simulate_scenario(load_scenario(folder / "scenario.yaml"))


def test_a_batch_is_a_list_or_a_directory(folder: Path) -> None:
    assert [entry.release.id for entry in load_batch(folder / "requests.yaml")] == list("abcd")
    (folder / "batch").mkdir()
    for name in "xy":
        (folder / "batch" / f"{name}.yaml").write_text(request_line(name, 1, 0.1), "utf-8")
    assert [entry.release.id for entry in load_batch(folder / "batch")] == ["x", "y"]
    (folder / "batch" / "z.yaml").write_text(request_line("x", 1, 0.1), "utf-8")
    with pytest.raises(OperationRejected, match="twice"):
        load_batch(folder / "batch")


def test_a_repeated_id_in_two_files_is_rejected(folder: Path) -> None:
    text = SCENARIO.replace("[requests.yaml]", "[requests.yaml, requests.yaml]")
    (folder / "scenario.yaml").write_text(text, "utf-8")
    with pytest.raises(OperationRejected, match="twice"):
        list(simulate_scenario(load_scenario(folder / "scenario.yaml"))[1])


def test_a_rejected_release_is_named(folder: Path) -> None:
    (folder / "requests.yaml").write_text(
        request_line("lost", 1, 0.4).replace("[zip]", "[zap]"), "utf-8"
    )
    with pytest.raises(ReleaseRejected, match="`lost`: `mechanism 1`: there is no attribute `zap`"):
        list(simulate_scenario(load_scenario(folder / "scenario.yaml"))[1])
