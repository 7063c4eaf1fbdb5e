"""The commands of the README's tour work, in order, in an empty directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dpolicy.cli.main import exit_code

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ dpolicy (.+)$", README, re.MULTILINE)


def test_the_commands_of_the_tour_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 8
    for line in COMMANDS:
        assert exit_code(shlex.split(line)) == 0, (line, capsys.readouterr().err)
    assert (tmp_path / "tour" / "rules.svg").read_text("utf-8").startswith("<svg")


def test_the_readme_contains_the_printed_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exit_code(["init", "tour"])
    exit_code(["rules", "tour"])
    printed = capsys.readouterr().out
    match = re.search(r"```text\n(\d+ of .+?)```", README, re.DOTALL)
    assert match is not None
    for line in match.group(1).strip().splitlines():
        assert line in printed.splitlines()


def test_every_link_has_a_target() -> None:
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / target).exists(), target
