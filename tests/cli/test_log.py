"""The text of the log has one line per record, and cannot control a terminal."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tests.pdp.builders import GLOBAL, policy, pure

from dpolicy import DecisionPoint
from dpolicy.cli.main import dpolicy


def test_a_reason_cannot_forge_lines_or_control_the_terminal(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    point = DecisionPoint(ledger)
    point.apply(policy(GLOBAL))
    point.reserve(pure("a", "0.5"))
    point.void("a", because="done\n    99  allowed  forged\x1b[2J\x1b]0;owned\x07")
    point.close()
    output = CliRunner().invoke(dpolicy, ["log", "--ledger", str(ledger)]).output
    assert len(output.splitlines()) == 3
    assert "\x1b" not in output and "\x07" not in output
