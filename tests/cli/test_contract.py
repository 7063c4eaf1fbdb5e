"""Contract of every command: exit codes, use of stdout and stderr, and the shape of its JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpolicy.cli.main import COMMANDS, exit_code

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7, relation: change}
units: {user: {}, user-month: {period: month}}
schema:
  attributes: {zip: {risk: low}, diagnosis: {risk: high}}
  labels: {stage: {values: [final, tuning], default: final}}
policies:
  - {name: global, kind: custom, when: always, units: [user, user-month], budget: {epsilon: 2}}
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {low: {epsilon: 3}, high: {rho: 0.5}}
  - name: stage
    kind: extension
    settings:
      - {name: final, when: 'labels.stage == "final"', budget: same}
      - {name: any, when: always, budget: {times: 2}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, budget: unlimited}
"""
BROKEN = POLICY.replace("unit: user\n", "unit: usr\n")
WARNED = POLICY.replace("schema:\n", "schema:\n  categories: {idle: {risk: low}}\n")
CASE = """\
policy: policy.yaml
steps:
  - check:
    expect: ok
  - rules:
    expect: {total: TOTAL}
"""


class CommandResult:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def dpolicy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return a function that runs commands in a directory with policies and case files."""
    monkeypatch.chdir(tmp_path)
    files = {"policy.yaml": POLICY, "broken.yaml": BROKEN, "warned.yaml": WARNED}
    files["good_test.yaml"] = CASE.replace("TOTAL", "9")
    files["bad_test.yaml"] = CASE.replace("TOTAL", "7")
    files["unreadable_test.yaml"] = "policy: policy.yaml\nstps: []\n"
    for name, text in files.items():
        Path(name).write_text(text, "utf-8")

    def run(*arguments: str) -> CommandResult:
        code = exit_code(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return CommandResult(code, captured.out, captured.err)

    return run


def run_installed_command(
    *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a separate process with additional environment variables."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "dpolicy"), *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("check policy.yaml", 0),
        ("check warned.yaml", 0),
        ("check broken.yaml", 3),
        ("check missing.yaml", 1),
        ("check", 64),
        ("check policy.yaml --format xml", 64),
        ("check policy.yaml --what", 64),
        ("nonsense", 64),
        ("--nonsense", 64),
        ("--help", 0),
        ("--version", 0),
        ("rules policy.yaml", 0),
        ("rules policy.yaml --all", 0),
        ("rules broken.yaml", 3),
        ("rules missing.yaml", 1),
        ("rules policy.yaml --unit usr", 64),
        ("rules policy.yaml --policy unknown", 64),
        ("rules policy.yaml --unit user --policy global", 0),
        ("rules policy.yaml --graph out.svg", 0),
        ("rules policy.yaml --graph missing/out.svg", 1),
        ("fmt policy.yaml --check", 3),
        ("fmt missing.yaml", 1),
        ("fmt unreadable_test.yaml", 0),
        ("test good_test.yaml", 0),
        ("test bad_test.yaml", 4),
        ("test good_test.yaml bad_test.yaml", 4),
        ("test unreadable_test.yaml", 3),
        ("test missing_test.yaml", 1),
        ("test", 64),
        ("schema", 0),
        ("schema --format json", 0),
        ("init", 64),
    ],
)
def test_commands_return_their_documented_exit_codes(dpolicy: Any, line: str, code: int) -> None:
    result = dpolicy(*line.split())
    assert result.code == code, result.err


@pytest.mark.parametrize(
    ("smaller", "larger", "code"),
    [
        ("global × final", "global × any", 0),
        ("global × any", "global × final", 0),
        ("global × finl", "global × any", 64),
    ],
)
def test_implies_returns_its_documented_exit_codes(
    dpolicy: Any, smaller: str, larger: str, code: int
) -> None:
    assert dpolicy("implies", "policy.yaml", smaller, larger).code == code


def test_check_prints_nothing_for_a_valid_policy(dpolicy: Any) -> None:
    result = dpolicy("check", "policy.yaml")
    assert (result.out, result.err) == ("", "")


def test_warnings_and_errors_go_to_standard_error(dpolicy: Any) -> None:
    assert "warning P101" in dpolicy("check", "warned.yaml").err
    broken = dpolicy("check", "broken.yaml")
    assert broken.out == ""
    assert "broken.yaml:11:11: error P020: unknown unit `usr`" in broken.err
    assert "did you mean `user`?" in broken.err


def test_check_prints_json(dpolicy: Any) -> None:
    fine = dpolicy("check", "policy.yaml", "--format", "json")
    assert fine.json["ok"] is True
    assert fine.json["digest"].startswith("sha256:")
    assert fine.json["diagnostics"] == []
    warned = dpolicy("check", "warned.yaml", "--format", "json").json
    assert [d["code"] for d in warned["diagnostics"]] == ["P101"]


@pytest.mark.parametrize("command", ["check", "rules"])
@pytest.mark.parametrize("option", ["--format json", "--format=json"])
def test_a_rejection_is_printed_as_json(dpolicy: Any, command: str, option: str) -> None:
    result = dpolicy(command, "broken.yaml", *option.split())
    assert result.code == 3
    assert result.err == ""
    (diagnostic,) = result.json["diagnostics"]
    assert result.json["ok"] is False
    assert (diagnostic["code"], diagnostic["severity"]) == ("P020", "error")
    assert (diagnostic["file"], diagnostic["line"], diagnostic["column"]) == ("broken.yaml", 11, 11)
    assert set(diagnostic) >= {"message", "help"}


def test_rules_prints_json(dpolicy: Any) -> None:
    all_rules = dpolicy("rules", "policy.yaml", "--all", "--format", "json")
    assert all_rules.err == ""
    output = all_rules.json
    assert (output["total"], len(output["rules"])) == (9, 9)
    assert output["kept"] == sum(rule["kept"] for rule in output["rules"])
    names = {rule["name"] for rule in output["rules"]}
    for rule in output["rules"]:
        assert set(rule) >= {"name", "unit", "budget", "kept", "implied-by"}
        assert (rule["implied-by"] is None) == rule["kept"]
        assert rule["implied-by"] is None or rule["implied-by"] in names
    by_name = {(rule["name"], rule["unit"]): rule for rule in output["rules"]}
    assert by_name["global × any", "user"]["budget"] == {"epsilon": 4.0, "delta": 1e-07}
    assert by_name["per-attribute[diagnosis] × final", "user"]["budget"] == {"rho": 0.5}
    assert by_name["cap", "user"]["budget"] == "unlimited"


def test_rules_without_all_prints_only_kept_rules(dpolicy: Any) -> None:
    all_rules = dpolicy("rules", "policy.yaml", "--all", "--format", "json").json
    kept = dpolicy("rules", "policy.yaml", "--format", "json").json
    assert (kept["total"], kept["kept"]) == (all_rules["total"], all_rules["kept"])
    assert kept["rules"] == [rule for rule in all_rules["rules"] if rule["kept"]]
    assert len(kept["rules"]) == kept["kept"] < kept["total"]


def test_rules_prints_json_for_an_empty_policy(dpolicy: Any) -> None:
    Path("empty.yaml").write_text("dpolicy: 1\n", "utf-8")
    result = dpolicy("rules", "empty.yaml", "--format", "json")
    assert result.json == {"total": 0, "kept": 0, "rules": []}


def test_rules_prints_text(dpolicy: Any) -> None:
    result = dpolicy("rules", "policy.yaml", "--all")
    assert "of 9 rules are enforced" in result.out
    assert "⇐" in result.out
    assert "per-release rules" in result.out


def test_implies_prints_json(dpolicy: Any) -> None:
    inside = dpolicy("implies", "policy.yaml", "global × final", "global × any", "--format", "json")
    assert inside.json == {"implies": True, "counter-example": None}
    outside = dpolicy(
        "implies", "policy.yaml", "global × any", "global × final", "--format", "json"
    )
    assert outside.json["implies"] is False
    assert "stage: tuning" in outside.json["counter-example"]


def test_case_results_are_printed_as_json_and_text(dpolicy: Any) -> None:
    result = dpolicy("test", "bad_test.yaml", "--format", "json")
    assert (result.code, result.err) == (4, "")
    assert (result.json["passed"], result.json["failed"]) == (1, 1)
    assert [step["passed"] for step in result.json["steps"]] == [True, False]
    text = dpolicy("test", "bad_test.yaml").out
    assert "bad_test.yaml:5:5: step 2 (rules) failed: expected 7 rules in total, got 9" in text
    assert "1 passed, 1 failed" in text


def test_fmt_is_idempotent_and_its_check_option_writes_nothing(dpolicy: Any) -> None:
    before = Path("policy.yaml").read_bytes()
    assert dpolicy("fmt", "policy.yaml", "--check").code == 3
    assert Path("policy.yaml").read_bytes() == before
    first = dpolicy("fmt", "policy.yaml")
    assert (first.code, first.out) == (0, "")
    assert "changed policy.yaml" in first.err
    after = Path("policy.yaml").read_bytes()
    assert after != before
    assert dpolicy("fmt", "policy.yaml", "--check").code == 0
    assert dpolicy("fmt", "policy.yaml", "--format", "json").json == {"changed": []}
    assert Path("policy.yaml").read_bytes() == after
    assert dpolicy("check", "policy.yaml").code == 0


def test_fmt_converts_line_endings(dpolicy: Any) -> None:
    Path("crlf.yaml").write_bytes(b"dpolicy: 1\r\nname: x\r\n")
    assert dpolicy("fmt", "crlf.yaml", "--check").code == 3
    assert dpolicy("fmt", "crlf.yaml").code == 0
    assert Path("crlf.yaml").read_bytes() == b"dpolicy: 1\nname: x\n"


def test_fmt_does_not_change_a_file_that_is_not_utf8(dpolicy: Any) -> None:
    Path("odd.yaml").write_bytes(b"dpolicy: 1\n# caf\xe9\n")
    assert dpolicy("fmt", "odd.yaml").code == 3
    assert Path("odd.yaml").read_bytes() == b"dpolicy: 1\n# caf\xe9\n"


def test_init_writes_a_valid_policy_and_overwrites_nothing(dpolicy: Any) -> None:
    assert dpolicy("init", "new").code == 0
    for command in ("check", "rules", "test"):
        result = dpolicy(command, "new")
        assert result.code == 0, result.err
    assert dpolicy("fmt", "new", "--check").code == 0
    Path("new/policy.yaml").write_text("mine", "utf-8")
    second = dpolicy("init", "new")
    assert second.code == 64
    assert "nothing was written" in second.err
    assert Path("new/policy.yaml").read_text("utf-8") == "mine"
    assert dpolicy("init", "policy.yaml").code == 64


def test_init_prints_json(dpolicy: Any) -> None:
    result = dpolicy("init", "new", "--format", "json")
    assert "new/policy.yaml" in result.json["wrote"]
    assert "wrote new/policy.yaml" in result.err


def test_schema_prints_json_in_both_formats(dpolicy: Any) -> None:
    assert dpolicy("schema").json == dpolicy("schema", "--format", "json").json
    assert "properties" in dpolicy("schema").json


def test_help_lists_every_command_and_every_command_takes_a_format(dpolicy: Any) -> None:
    text = dpolicy("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in text
        result = dpolicy(name, "--help")
        assert result.code == 0
        formats = "html|markdown|csv|json|pdf" if name == "report" else "text|json"
        assert f"--format [{formats}]" in result.out


def test_rules_writes_a_graph(dpolicy: Any) -> None:
    result = dpolicy("rules", "policy.yaml", "--graph", "out.svg")
    assert (result.out, "out.svg" in result.err) == ("", True)
    assert Path("out.svg").read_text("utf-8").startswith("<svg")


def test_the_installed_command_returns_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(BROKEN, "utf-8")
    process = run_installed_command("check", "policy.yaml", cwd=tmp_path)
    assert process.returncode == 3
    assert process.stderr.startswith("policy.yaml:11:11: error P020")
    assert run_installed_command("check", "nowhere", cwd=tmp_path).returncode == 1
    assert run_installed_command("chek", cwd=tmp_path).returncode == 64


def test_output_works_on_an_ascii_terminal(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    process = run_installed_command(
        "rules", "policy.yaml", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert process.returncode == 0, process.stderr
    assert "global" in process.stdout


def test_a_lone_surrogate_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(r'{"dpolicy": 1, "name": "\ud800"}', "utf-8")
    for form in ("text", "json"):
        process = run_installed_command("check", "policy.json", "--format", form, cwd=tmp_path)
        assert process.returncode == 3
        assert "Traceback" not in process.stderr


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
    attributes = "".join(f"    a{n}: {{risk: low}}\n" for n in range(5000))
    text = f"dpolicy: 1\nschema:\n  attributes:\n{attributes}policies:\n"
    text += "  - {name: p, kind: attribute, unit: user, budgets: {low: {rho: 1}}}\n"
    (tmp_path / "policy.yaml").write_text(text, "utf-8")
    command = str(Path(sys.executable).parent / "dpolicy")
    with subprocess.Popen(
        [command, "rules", "policy.yaml", "--format", "json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read().decode()
        assert process.wait(timeout=60) in (0, 1)
    assert "Traceback" not in stderr
    assert "Exception" not in stderr
