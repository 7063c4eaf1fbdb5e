"""`dpolicy submit --offer`: numbered offers, concrete values, and what was submitted."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from dpolicy.cli.commands.releases.submit import _submit_command
from dpolicy.cli.main import exit_code

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema: {attributes: {zip: {risk: high}}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 0.5}}
"""
RELEASE = """
release: pv-big
mechanisms:
  - {name: histogram, mechanism: {kind: gaussian, sigma: 0.5}, attributes: [zip]}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPOLICY_LEDGER", "ledger.db")
    Path("policy.yaml").write_text(POLICY, "utf-8")
    Path("big.yaml").write_text(RELEASE, "utf-8")
    assert exit_code(["apply", "policy.yaml"]) == 0
    return tmp_path


def test_offers_are_numbered_and_can_be_submitted(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["submit", "big.yaml"]) == 2
    lines = capsys.readouterr().out.splitlines()
    expected = "  1  histogram: sigma 0.5 → 1   (submit with: dpolicy submit big.yaml --offer 1)"
    assert expected in lines
    assert exit_code(["submit", "big.yaml", "--offer", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "submitted  pv-big-2  instead of pv-big",
        "  histogram: sigma 0.5 → 1",
        "allowed  pv-big-2",
    ]


def test_the_printed_command_runs_as_it_is(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DPOLICY_LEDGER")
    Path("ledger.db").rename("my ledger.db")
    Path("big.yaml").rename("big one.yaml")
    arguments = ["submit", "big one.yaml", "--ledger", "my ledger.db", "--by", "ana"]
    assert exit_code(arguments) == 2
    printed = re.search(r"submit with: (dpolicy .*)\)$", capsys.readouterr().out, re.MULTILINE)
    assert printed is not None
    assert exit_code(shlex.split(printed[1])[1:]) == 0
    assert "allowed  pv-big-2" in capsys.readouterr().out


def test_the_printed_command_has_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://ana:p%40ss@db/ledger"
    printed = _submit_command(Path("a.yaml"), address, "", False)
    assert printed == "dpolicy submit a.yaml --ledger postgresql://ana:PASSWORD@db/ledger"
    monkeypatch.setenv("DPOLICY_LEDGER", address)
    assert _submit_command(Path("a.yaml"), address, "", True) == "dpolicy submit a.yaml --reserve"


def test_a_missing_ledger_option_names_the_variable(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DPOLICY_LEDGER")
    assert exit_code(["submit", "big.yaml"]) == 64
    message = "Missing option '--ledger'; help: pass it, or set DPOLICY_LEDGER"
    assert message in capsys.readouterr().err


def test_the_json_has_the_submitted_release(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["submit", "big.yaml", "--offer", "1", "--id", "mine", "--format", "json"]
    capsys.readouterr()
    assert exit_code(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["release"], answer["decision"]) == ("mine", "allow")
    assert answer["submitted"]["mechanisms"][0]["mechanism"] == {"kind": "gaussian", "sigma": 1}


def test_an_edited_release_under_a_denied_id_gets_help(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code(["submit", "big.yaml"])
    Path("big.yaml").write_text(RELEASE.replace("0.5", "1"), "utf-8")
    capsys.readouterr()
    assert exit_code(["submit", "big.yaml"]) == 64
    assert "help: choose a new id, for example `pv-big-2`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--id", "x"], ["--offer", "1", "--dry-run"], ["--offer", "0"], ["--offer", "9"]]
)
def test_misused_options_are_refused(files: Path, options: list[str]) -> None:
    assert exit_code(["submit", "big.yaml", *options]) == 64
