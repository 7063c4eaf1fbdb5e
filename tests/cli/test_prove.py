"""`dpolicy prove` prints proofs in words and JSON, and writes histories that `submit` allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.proofs.small_policies import triangle

from dpolicy.cli.main import exit_code

TEXT = triangle().sources[0].text


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(TEXT, "utf-8")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = exit_code(list(arguments))
    return code, capsys.readouterr().out


def test_a_bound_has_its_rules_and_its_history(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(capsys, "prove", policy, "--unit", "user")
    assert (code, output) == (
        0,
        "the policy keeps all releases for one user within ρ 1.5\n"
        "  because of 1/2 × ab (ρ 1) + 1/2 × bc (ρ 1) + 1/2 × ca (ρ 1)\n"
        "  the policy allows 3 releases that together reach ρ 1.5: no smaller bound holds\n",
    )


@pytest.mark.parametrize(
    ("claim", "code", "verdict"),
    [
        (("--rho", "1.5"), 0, "ρ 1.5 holds"),
        (("--rho", "1.4"), 2, "ρ 1.4 does not hold"),
        (("--mu", "2"), 6, "undecided: μ 2"),
        (("--epsilon", "10", "--delta", "1e-6"), 0, "ε 10, δ 1e-06 holds"),
        (("--epsilon", "2", "--delta", "1e-6"), 2, "ε 2, δ 1e-06 does not hold"),
    ],
)
def test_the_exit_code_has_the_verdict(
    policy: str,
    claim: tuple[str, ...],
    code: int,
    verdict: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, output = run(capsys, "prove", policy, "--unit", "user", *claim)
    assert own == code and output.startswith(verdict)


def test_submit_allows_the_written_history(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, ledger = tmp_path / "history", str(tmp_path / "ledger.db")
    assert run(capsys, "prove", policy, "--unit", "user", "--rho", "1.4", "--out", str(out))[0] == 2
    files = sorted(map(str, out.iterdir()))
    assert len(files) == 3
    assert run(capsys, "apply", policy, "--ledger", ledger)[0] == 0
    assert run(capsys, "submit", *files, "--ledger", ledger)[0] == 0


def test_json_has_the_weights_and_the_history(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(
        capsys, "prove", policy, "--unit", "user", "--rho", "1.4", "--format", "json"
    )
    answer = json.loads(output)
    assert code == 2 and answer["verdict"] == "does not hold" and answer["claim"] == {"rho": 1.4}
    (proof,) = answer["proofs"]
    assert proof["bound"] == {"rho": 1.5}
    assert [(part["rule"], part["weight"]) for part in proof["rules"]] == [
        (name, "1/2") for name in ("ab", "bc", "ca")
    ]
    assert answer["broken-by"]["reached"]["rho"] > 1.4
    assert len(answer["broken-by"]["releases"]) == 3


def test_any_two_teams_are_bounded_in_words(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(capsys, "prove", policy, "--unit", "user", "--any", "2", "--of", "team")
    assert code == 0
    assert output.startswith(
        "the policy keeps all releases for one user, by any 2 of `team`, within"
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--unit", "usr"),
        ("--unit", "user", "--when", '"z" in attributes'),
        ("--unit", "user", "--any", "2"),
        ("--unit", "user", "--any", "2", "--of", "nothing"),
        ("--unit", "user", "--at", "country"),
        ("--unit", "user", "--at", "country=XX"),
        ("--unit", "user", "--rho", "1", "--mu", "1"),
        ("--unit", "user", "--rho", "-1"),
        ("--unit", "user", "--delta", "1e-6"),
        ("--unit", "user", "--epsilon", "many"),
    ],
)
def test_wrong_options_are_wrong_usage(
    policy: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["prove", policy, *options]) == 64
    assert "Traceback" not in capsys.readouterr().err


def test_a_history_that_no_number_of_the_claim_bounds_states_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    rule = "{name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6, delta: 1e-7}}"
    path.write_text(f"dpolicy: 1\npolicies: [{rule}]\n", "utf-8")
    code, output = run(capsys, "prove", str(path), "--unit", "user", "--epsilon", "6")
    assert code == 2 and "allows 1 release that reaches ρ 1e-06, with no finite ε at δ 0:" in output
    code, output = run(capsys, "prove", str(path), "--unit", "user", "--rho", "1")
    assert code == 2 and "allows 1 release that reaches δ 1e-08, with no finite ρ or μ:" in output
