"""Edge cases of release files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpolicy.cli.main import exit_code

POLICY = (
    "dpolicy: 1\naccounting: {delta: 1e-7}\npolicies:\n"
    "  - {name: a, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n"
)


def test_a_sampling_rate_that_rounds_to_one_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "release: r\nmechanisms: [{mechanism: {kind: gaussian, sigma: 1, "
        "sampling-rate: 0.99999999999999999999}}]\n"
    )
    assert exit_code(["cost", str(file)]) == 0


def test_an_empty_mechanism_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("release: r\nmechanisms: [{mechanism: {}}]\n")
    assert exit_code(["cost", str(file)]) == 3
    assert "M001" in capsys.readouterr().err


def test_submit_reports_an_invalid_release_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    release = tmp_path / "r.yaml"
    release.write_text(
        "release: r\nmechanisms: [{mechanism: {kind: gaussian, sigma: 1}, attributes: [zpi]}]\n"
    )
    ledger = ["--ledger", str(tmp_path / "ledger.db")]
    assert exit_code(["apply", str(tmp_path / "p.yaml"), *ledger]) == 0
    capsys.readouterr()
    assert exit_code(["submit", str(release), *ledger, "--format", "json"]) == 3
    output = json.loads(capsys.readouterr().out)
    assert [problem["code"] for problem in output["diagnostics"]] == ["R002"]


def test_cost_requires_a_unit_if_the_policy_has_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, release = tmp_path / "policy.yaml", tmp_path / "release.yaml"
    policy.write_text(
        "dpolicy: 1\naccounting: {delta: 1e-7}\nunits: {user: {}, user-day: {period: day}}\n"
        "policies: [{name: g, kind: custom, when: always, unit: user, budget: {epsilon: 1}}]\n",
        "utf-8",
    )
    text = "release: a\nmechanisms: [{mechanism: {kind: gaussian, sigma: 10}}]\n"
    release.write_text(text, "utf-8")
    assert exit_code(["cost", str(release), "--policy", str(policy)]) == 3
    assert "`unit` is required; units of the policy: user, user-day" in capsys.readouterr().err
    assert exit_code(["cost", str(release)]) == 0
