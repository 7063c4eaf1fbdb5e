"""Common mistakes on the command line get a message that names the mistake and the remedy."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path

import pytest

from dpolicy.cli.main import COMMANDS, GROUPS, exit_code

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Work in a directory with the starter policy as `tour` and a ledger `l.db`."""
    monkeypatch.chdir(tmp_path)
    assert exit_code(["init", "tour"]) == 0
    assert exit_code(["apply", "tour", "--ledger", "l.db"]) == 0
    capsys.readouterr()


def test_a_misspelt_command_gets_a_suggestion(capsys: Captured) -> None:
    assert exit_code(["chek", "tour"]) == 64
    assert "no command `chek`; did you mean `check`?" in capsys.readouterr().err
    assert exit_code(["xyzzy"]) == 64
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["rules"], ["serve"]])
def test_h_prints_the_help(command: list[str], capsys: Captured) -> None:
    assert exit_code([*command, "-h"]) == 0
    short = capsys.readouterr().out
    assert exit_code([*command, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert short.startswith("Usage: ")


def test_the_help_groups_all_commands_and_names_the_first_one(capsys: Captured) -> None:
    assert {entry.module.split(".")[0] for entry in COMMANDS.values()} == set(GROUPS)
    assert exit_code(["--help"]) == 0
    text = capsys.readouterr().out
    assert "Start here: `dpolicy init tour`" in text
    places = [text.index(f"\n{title}:\n") for title in GROUPS.values()]
    assert places == sorted(places)


def test_the_same_policy_is_not_recorded_again(capsys: Captured) -> None:
    assert exit_code(["apply", "tour", "--ledger", "l.db"]) == 0
    assert "is already active since record 1" in capsys.readouterr().err
    assert exit_code(["apply", "tour", "--ledger", "l.db", "--format", "json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["applied"], output["sequence"], output["already-active"]) == (True, 1, True)
    assert exit_code(["log", "--ledger", "l.db", "--format", "json"]) == 0
    assert capsys.readouterr().out.count("policy-applied") == 1


def test_a_reason_or_another_text_is_recorded(capsys: Captured) -> None:
    assert exit_code(["apply", "tour", "--ledger", "l.db", "--because", "yearly review"]) == 0
    assert "is active since record 2" in capsys.readouterr().err
    path = Path("tour/policy.yaml")
    path.write_text(path.read_text("utf-8") + "# reviewed\n", "utf-8")
    assert exit_code(["apply", "tour", "--ledger", "l.db"]) == 0
    assert "is active since record 3" in capsys.readouterr().err


def test_an_active_policy_with_conflicts_still_has_them(capsys: Captured) -> None:
    release = {
        "release": "past",
        "mechanisms": [
            {
                "name": "counts",
                "mechanism": {"kind": "declared", "epsilon": 50},
                "unit": "user",
                "attributes": ["zip"],
                "labels": {"dataset": "web"},
            }
        ],
    }
    Path("past.json").write_text(json.dumps(release), "utf-8")
    assert exit_code(["import", "past.json", "--ledger", "l.db"]) == 0
    assert exit_code(["apply", "tour", "--ledger", "l.db"]) == 2
    assert "conflict  global × standard" in capsys.readouterr().out


def test_an_accepted_name_must_be_a_conflict(capsys: Captured) -> None:
    assert exit_code(["apply", "tour", "--ledger", "l.db", "--accept", "global"]) == 64
    assert "no conflict `global`" in capsys.readouterr().err


def test_a_port_in_use_is_named(capsys: Captured) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = str(listener.getsockname()[1])
        assert exit_code(["serve", "--ledger", "l.db", "--port", port]) == 1
    message = f"error: cannot listen on 127.0.0.1, port {port}: Address already in use"
    assert message in capsys.readouterr().err


def test_a_missing_certificate_is_named(capsys: Captured) -> None:
    options = ["--certificate", "missing.pem", "--key", "missing.key"]
    assert exit_code(["serve", "--ledger", "l.db", *options]) == 64
    assert "'missing.pem' does not exist" in capsys.readouterr().err


def test_a_missing_ledger_option_names_its_variable(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPOLICY_LEDGER", raising=False)
    assert exit_code(["budgets"]) == 64
    assert "set DPOLICY_LEDGER" in capsys.readouterr().err
