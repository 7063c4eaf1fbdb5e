"""`dpolicy spent`: the text, and the assumption beside the beliefs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpolicy.cli.main import exit_code

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 40}}
"""
RELEASE = "release: r\nby: ana\nmechanisms: [{mechanism: %s, unit: user}]\n"
ADAPTIVE = (
    "note: the numbers are upper bounds for releases that do not depend on earlier results; "
    "against adaptive choice, the guarantee is the budget of a rule"
)
ASSUMPTION = (
    "worst case over all people, outputs and prior knowledge; it is not a probability of harm"
)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPOLICY_LEDGER", str(tmp_path / "ledger.db"))
    Path("policy.yaml").write_text(POLICY, "utf-8")
    assert exit_code(["apply", "policy.yaml"]) == 0
    return tmp_path / "ledger.db"


def submit_and_print(mechanism: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    Path("release.yaml").write_text(RELEASE % mechanism, "utf-8")
    assert exit_code(["submit", "release.yaml"]) == 0
    capsys.readouterr()
    assert exit_code(["spent"]) == 0
    return capsys.readouterr()


def test_beliefs_are_those_of_the_risk_command(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = submit_and_print("{kind: gaussian, sigma: 5}", capsys)
    (line,) = [line for line in out.splitlines() if "believes" in line]
    exception = "a larger belief has probability at most 1e-07"
    assert err.splitlines()[1:] == [ASSUMPTION, exception, ADAPTIVE]
    assert exit_code(["risk", "--mu", "0.2", "--delta", "1e-7"]) == 0
    risk = capsys.readouterr().out.splitlines()[1:4]
    beliefs = ", ".join(text.split("no more than ")[1] for text in risk)
    expected = f"  an attacker who believes 50 %, 10 %, 1 % ends at no more than {beliefs}"
    assert line == expected


def test_a_pure_loss_has_no_exception(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = submit_and_print("{kind: declared, epsilon: 20}", capsys)
    assert "ends at no more than < 100 %, < 100 %, < 100 %" in out
    assert err.splitlines()[1:] == [ASSUMPTION, ADAPTIVE]
