"""Lists of hundreds of rules fit two screens, lose no rule, and have the numbers of each rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.rules.hospital import hospital_text

from dpolicy.cli.main import exit_code
from dpolicy.cli.output import rule_table
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import used_share
from dpolicy.privacy.number_text import format_share

#: Lines and characters of one screen.
HEIGHT, WIDTH = 50, 120

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in a directory with policies of a hospital."""
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(hospital_text(), "utf-8")
    Path("new.yaml").write_text(hospital_text(high=0.5, category_high=1.5), "utf-8")

    def run_command(*arguments: str, code: int = 0) -> str:
        assert exit_code(list(arguments)) == code
        return capsys.readouterr().out

    return run_command


@pytest.fixture
def ledger(run: Run) -> str:
    """Return a ledger with twenty past releases; they exceed some rules."""
    run("apply", "old.yaml", "--ledger", "ledger.db")
    files = []
    for number in range(20):
        kind: dict[str, Any] = {"kind": "gaussian", "sigma": 6 + number % 7, "sensitivity": 1}
        mechanism = {
            "name": "counts",
            "mechanism": {"kind": "laplace", "scale": 0.7} if number == 13 else kind,
            "unit": "patient",
            "attributes": [f"field-{(number * 7) % 60:02}", f"field-{(number * 11 + 3) % 60:02}"],
            "labels": {"deployment": "public" if number % 2 else "internal"},
        }
        path = Path(f"past-{number}.json")
        path.write_text(json.dumps({"release": path.stem, "mechanisms": [mechanism]}), "utf-8")
        files.append(str(path))
    run("import", *files, "--ledger", "ledger.db")
    return "ledger.db"


def assert_fits(text: str, screens: int) -> None:
    """Check the size of an output."""
    lines = text.splitlines()
    assert len(lines) <= screens * HEIGHT
    assert max(map(len, lines)) <= WIDTH


def rule_counts(text: str) -> list[int]:
    """Return the numbers of the column `rules` of all tables."""
    counts, place = [], None
    for line in text.splitlines():
        if line.startswith("policy"):
            place = line.index("rules")
        elif not line:
            place = None
        elif place is not None and (number := re.match(r"\d+", line[place:])) and is_row(line):
            counts.append(int(number[0]))
    return counts


def is_row(line: str) -> bool:
    """Return whether a line is a row of a table, and not the note below a row."""
    return not re.match(r" +(\d+ (attribute|categor)|most used:)", line)


def test_the_rules_of_a_hospital_fit_one_screen(run: Run) -> None:
    text = run("rules", "old.yaml")
    assert_fits(text, 1)
    assert text.startswith("269 of 349 rules are enforced")
    assert sum(rule_counts(text)) == 269
    assert re.search(r"per-attribute  high +patient +ε 1 +ε 1.5 +ε 2 +ε 3 +48\n", text)
    assert "12 attributes: field-00, field-05," in text


def test_flat_and_all_print_one_line_per_rule(run: Run) -> None:
    flat = run("rules", "old.yaml", "--flat")
    assert sum(line.startswith("  ") for line in flat.splitlines()) == 269
    every = run("rules", "old.yaml", "--all")
    assert sum(line.startswith(("  ", "· ")) for line in every.splitlines()) == 349
    assert run("rules", "old.yaml", "--format", "json") == run(
        "rules", "old.yaml", "--format", "json", "--flat"
    )


def test_two_edited_lines_give_a_short_diff_with_budgets_before_and_after(run: Run) -> None:
    text = run("diff", "old.yaml", "new.yaml")
    assert_fits(text, 1)
    assert text.startswith("84 tightened\n")
    assert sum(rule_counts(text)) == 84
    assert re.search(r"per-attribute  high +patient  ε 1 → 0.5 +ε 1.5 → 0.75 .* 48\n", text)
    flat = run("diff", "old.yaml", "new.yaml", "--flat").splitlines()
    assert len(flat) == 84
    assert "per-attribute[field-00] × public × final " in flat[0]
    assert flat[0].endswith("ε 1 → 0.5")
    changes = json.loads(run("diff", "old.yaml", "new.yaml", "--format", "json"))["changes"]
    assert len(changes) == 84
    assert set(changes[0]) == {"change", "rule", "unit", "before", "after", "each-release"}


def test_a_diff_names_added_and_removed_rules_and_a_changed_delta(run: Run) -> None:
    text = hospital_text().replace("delta: 1e-8", "delta: 1e-7").replace("name: any", "name: all")
    Path("other.yaml").write_text(text, "utf-8")
    grouped = run("diff", "old.yaml", "other.yaml")
    assert_fits(grouped, 3)
    flat = run("diff", "old.yaml", "other.yaml", "--flat").splitlines()
    assert sum(rule_counts(grouped)) == len(flat)
    for kind in ("added", "removed"):
        count = sum(line.startswith(kind) for line in flat)
        assert f"{count} {kind}" in grouped.splitlines()[0]
    assert "loosened cumulative rules, δ 1e-08 → 1e-07" in grouped
    assert "added cumulative rules, δ 1e-07\n" in grouped


def test_a_diff_without_changes_prints_that_there_are_none(run: Run) -> None:
    assert run("diff", "old.yaml", "old.yaml") == "no rule changes\n"


def test_a_budget_whose_thresholds_change_is_printed_as_unchanged(run: Run) -> None:
    text = hospital_text().replace("relation:", "profile: classic, relation:")
    Path("classic.yaml").write_text(text, "utf-8")
    for options in ((), ("--flat",)):
        output = run("diff", "old.yaml", "classic.yaml", *options)
        assert output.count("unchanged") > 10
        assert output.splitlines()[-1].startswith("unchanged: the budget is the same")


def test_budgets_of_a_hospital_fit_one_screen(run: Run, ledger: str) -> None:
    text = run("budgets", "--ledger", ledger)
    statuses = json.loads(run("budgets", "--ledger", ledger, "--format", "json"))["budgets"]
    head, _, table = text.partition("\n\n")
    exceeded = [status["rule"] for status in statuses if not status["holds"]]
    assert len(exceeded) == 3
    assert head.splitlines()[0] == "3 rules are exceeded"
    for line, rule in zip(head.splitlines()[1:], exceeded, strict=True):
        assert rule in line
        assert line.endswith("exceeded")
    assert_fits(table, 1)
    assert sum(rule_counts(table)) == len(statuses) == 268


def test_each_line_of_budgets_has_the_numbers_of_its_most_used_rule(run: Run, ledger: str) -> None:
    text = run("budgets", "--ledger", ledger)
    flat = run("budgets", "--ledger", ledger, "--flat").splitlines()
    notes = re.findall(r"most used: (.+?)  (\S+ of ε \S+)", text)
    assert len(notes) == 13
    assert len(flat) == 268
    rules_of_notes = {rule for rule, _ in notes}
    for rule, amounts in notes:
        assert any(f"  {rule} " in line and amounts in line for line in flat)
    # The most used rule of all, and the most used attribute, are the first of their kind.
    assert re.split(r"\s{2,}", flat[0])[2] in rules_of_notes
    attribute = next(line for line in flat if "per-attribute[" in line)
    assert re.split(r"\s{2,}", attribute)[2] in rules_of_notes


def test_each_cell_of_budgets_has_the_largest_share_of_its_rules(run: Run, ledger: str) -> None:
    with closing(DecisionPoint(open_existing(ledger))) as point:
        statuses = point.budgets()
    naive: dict[tuple[str, ...], dict[str, Fraction]] = {}
    for status in statuses:
        base, share = status.rule.base, used_share(status)
        cells = naive.setdefault((base.policy, base.risk, base.level, base.unit), {})
        settings = " × ".join(setting.name for setting in status.rule.settings)
        assert share is not None
        cells[settings] = max(share, cells.get(settings, share))
    rows = [
        line
        for line in run("budgets", "--ledger", ledger).splitlines()
        if re.match("(everything|per-)", line)
    ]
    printed = [re.split(r"\s*[▁▂▃▄▅▆▇█] ", line, maxsplit=4) for line in rows]
    expected = sorted(naive.items(), key=lambda entry: -max(entry[1].values()))
    assert len(printed) == len(expected) == 13
    for (left, *texts), (key, shares) in zip(printed, expected, strict=True):
        assert left.split() == [part for part in key if part]
        texts[-1] = re.split(r"\s{2,}", texts[-1])[0]
        assert texts == [format_share(share) for share in shares.values()]


def test_the_most_used_rule_is_printed_with_its_binding_quantity(run: Run) -> None:
    run("apply", "old.yaml", "--ledger", "stated.db")
    mechanism = {
        "name": "counts",
        "mechanism": {"kind": "declared", "epsilon": 0.01, "delta": 9.5e-10},
        "unit": "patient",
        "attributes": ["field-01"],
    }
    Path("stated.json").write_text(
        json.dumps({"release": "stated", "mechanisms": [mechanism]}), "utf-8"
    )
    run("import", "stated.json", "--ledger", "stated.db")
    text = run("budgets", "--ledger", "stated.db")
    assert "everything × any × final  stated δ 9.5e-10 of 1e-09, the part of δ" in text


def test_many_settings_are_rows_if_their_columns_do_not_fit(run: Run) -> None:
    settings = "".join(
        f"      - {{name: purpose-of-team-{n}, when: 'labels.stage == \"final\"', "
        f"budget: {{times: {n + 1}}}}}\n"
        for n in range(9)
    )
    extension = f"  - name: teams\n    kind: extension\n    settings:\n{settings}"
    last = "      - {name: everyone, when: always, budget: {times: 10}}\n"
    text = hospital_text().replace("each-release:\n", f"{extension}{last}each-release:\n")
    Path("wide.yaml").write_text(text, "utf-8")
    output = run("rules", "wide.yaml")
    kept = int(output.split()[0])
    assert max(map(len, output.splitlines())) <= WIDTH
    assert sum(rule_counts(output)) == kept
    assert "public × final × everyone" in output


def test_units_have_their_own_lines_if_a_line_is_narrower(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_table, "line_width", lambda: 100)
    output = run("rules", "old.yaml")
    assert max(map(len, output.splitlines())) <= 100
    assert sum(rule_counts(output)) == 269


def test_the_names_that_do_not_fit_are_counted() -> None:
    names = ["alpha", "beta", "gamma", "delta"]
    assert rule_table.fit_names(names, 100) == "alpha, beta, gamma, delta"
    assert rule_table.fit_names(names, 22) == "alpha, beta and 2 more"
    assert rule_table.fit_names(names, 3) == "alpha and 3 more"


def test_a_small_policy_keeps_one_line_per_rule(run: Run) -> None:
    run("init", "small")
    text = run("rules", "small")
    assert "  per-attribute[diagnosis] × standard    user" in text
    assert "--flat" not in text
