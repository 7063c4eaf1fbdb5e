"""Import files: tables with a mapping, lists, folders, and located errors."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import polars
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.cli.main import exit_code
from dpolicy.integrations.past_releases.csv_text import read_csv
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
units: {patient: {}, stay: {of: patient, period: month}}
schema:
  attributes: {age: {risk: high}, zip: {risk: high}}
  labels: {purpose: {values: [research, planning]}}
policies:
  - {name: all, kind: custom, when: always, unit: patient, budget: {epsilon: 3, delta: 1e-6}}
"""
MAPPING = """\
mapping: 1
delimiter: ";"
id: Ref
date: {column: Date, date-format: "%d.%m.%Y"}
by: Team
unit: {column: Level, values: {person: patient}, default: patient}
attributes: {column: Variables, separator: ","}
labels: {purpose: Why}
mechanism:
  kind: {column: Noise, values: {Gauss: gaussian, stated: declared}}
  parameters: {sigma: Sigma, epsilon: Eps}
"""
TABLE = """\
Ref;Date;Team;Level;Variables;Noise;Sigma;Eps;Why
r1;01.03.2023;epi;person;age, zip;Gauss;2;;research
r2;05.04.2023;"epi";;age;stated;;0.5;planning

r2;05.04.2023;epi;person;"zip";Gauss;3;;planning
"""


@pytest.fixture
def dpolicy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(arguments: str, expected: int = 0) -> tuple[str, str]:
        assert exit_code(shlex.split(arguments)) == expected, capsys.readouterr()
        out, err = capsys.readouterr()
        return out, err

    Path("policy.yaml").write_text(POLICY, "utf-8")
    Path("map.yaml").write_text(MAPPING, "utf-8")
    Path("past.csv").write_text(TABLE, "utf-8")
    run("apply policy.yaml --ledger l.db")
    return run


def release(dpolicy: Any, name: str, ledger: str = "l.db") -> dict[str, Any]:
    """Return the last recorded event of a release."""
    lines = dpolicy(f"log --ledger {ledger} --format json")[0].splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return next(event for event in reversed(events) if event.get("release") == name)


def test_a_table_is_imported_by_its_mapping(dpolicy: Any) -> None:
    out, err = dpolicy("import past.csv --mapping map.yaml --ledger l.db --by otto --because wiki")
    assert (out, err) == ("", "imported r1, r2\nnow exceeded: all  unit patient\n")
    event = release(dpolicy, "r2")
    assert (event["released"], event["by"], event["because"]) == ("2023-04-05", "otto", "wiki")
    assert event["body"] == {
        "release": "r2",
        "by": "epi",
        "mechanisms": [
            {
                "mechanism": {"kind": "declared", "epsilon": 0.5},
                "unit": "patient",
                "attributes": ["age"],
                "labels": {"purpose": "planning"},
            },
            {
                "mechanism": {"kind": "gaussian", "sigma": 3},
                "unit": "patient",
                "attributes": ["zip"],
                "labels": {"purpose": "planning"},
            },
        ],
    }
    assert "imported         r1  of 2023-03-01  otto  wiki" in dpolicy("log --ledger l.db")[0]
    dpolicy("verify --ledger l.db")


def test_a_second_import_is_already_recorded(dpolicy: Any) -> None:
    command = "import past.csv --mapping map.yaml --ledger l.db --format json"
    first = json.loads(dpolicy(command)[0])
    second = json.loads(dpolicy(command)[0])
    assert (first["imported"], first["already-recorded"]) == ({"r1": 2, "r2": 3}, {})
    assert (second["imported"], second["already-recorded"]) == ({}, {"r1": 2, "r2": 3})
    note = dpolicy("import past.csv --mapping map.yaml --ledger l.db")[1]
    assert "already recorded, and not charged again: r1, r2" in note


def test_an_import_of_files_without_a_release_states_it(dpolicy: Any) -> None:
    Path("empty.csv").write_text("", "utf-8")
    note = dpolicy("import empty.csv --mapping map.yaml --ledger l.db")[1]
    assert note == "imported nothing: the files have no release\n"


def test_a_dry_run_writes_nothing_and_states_what_the_import_does(dpolicy: Any) -> None:
    before = dpolicy("log --ledger l.db")
    command = "import past.csv --mapping map.yaml --ledger l.db"
    out, err = dpolicy(f"{command} --dry-run")
    assert "would import r1  2023-03-01  epi\n" in out
    assert "exceeded" in out and "rules that would become exceeded: 1" in err
    preview = json.loads(dpolicy(f"{command} --dry-run --format json")[0])
    assert preview["would-import"] == {"r1": "2023-03-01", "r2": "2023-04-05"}
    assert dpolicy("log --ledger l.db") == before
    done = json.loads(dpolicy(f"{command} --format json")[0])
    assert preview["would-exceed"] == done["exceeded"]
    assert preview["charged"][0]["after"] == done["exceeded"][0]
    dpolicy("import past.csv --mapping map.yaml --ledger none.db --dry-run", 1)
    assert not Path("none.db").exists()


def test_all_problems_of_a_file_are_reported_with_row_and_column(dpolicy: Any) -> None:
    rows = (
        "Ref;Date;Team;Level;Variables;Noise;Sigma;Eps;Why",
        "b1;31.02.2023;epi;person;age, zpi;Gauss;2;;research",
        "b2;05.04.2999;epi;ward;age;Gauss;2;;planning",
        ";05.04.2023;epi;;zip;Gauss;-3;;planning",
        "b4;05.04.2023;epi",
        "b5;05.04.2023;epi;;zip;Laplace;1;;planing",
        "b7;05.04.2023;epi;;zip;Gauss;1;;planing",
        "b6;05.04.2023;epi;;zip;Gauss;1;;planning",
        "b6;06.04.2023;epi;;zip;Gauss;1;;planning",
    )
    Path("bad.csv").write_text("\n".join(rows), "utf-8")
    command = "import bad.csv --mapping map.yaml --ledger l.db"
    out, _ = dpolicy(f"{command} --format json", 3)
    located = {(d["line"], d["column"], d["code"]) for d in json.loads(out)["diagnostics"]}
    assert located >= {
        (2, 4, "P007"),  # no day
        (2, 26, "R002"),  # unknown attribute
        (3, 4, "P009"),  # in the future
        (3, 19, "P012"),  # no translation
        (4, 13, "P008"),  # no id
        (5, 15, "P007"),  # three cells
        (6, 24, "P012"),
        (7, 33, "R005"),  # unknown label value
        (9, 4, "P010"),  # another date of the same release
    }
    assert "bad.csv:2:26: error R002" in dpolicy(command, 3)[1]
    assert "b6" not in dpolicy("log --ledger l.db")[0]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("sigma: Sigma", "sigma: Sgma"), "P006"),
        (("mapping: 1", "mapping: 2"), "P009"),
        (("id: Ref\n", ""), "P008"),
        (('delimiter: ";"', 'delimiter: "x"'), "P012"),
        (('delimiter: ";"', 'delimiter: ","'), "P001"),
        (("by: Team", "by: {value: x, column: Team}"), "P006"),
        (("by: Team", "by: [Team]"), "P007"),
        (("%d.%m.%Y", "%Y%Y"), "P007"),
    ],
)
def test_a_wrong_mapping_is_located(dpolicy: Any, change: tuple[str, str], code: str) -> None:
    Path("map.yaml").write_text(MAPPING.replace(*change), "utf-8")
    err = dpolicy("import past.csv --mapping map.yaml --ledger l.db", 3)[1]
    assert f"error {code}: " in err


def test_lists_folders_and_parquet_give_the_same_records(dpolicy: Any) -> None:
    dpolicy("import past.csv --mapping map.yaml --ledger l.db")
    expected = release(dpolicy, "r1")
    rows = list(csv.DictReader(StringIO(TABLE), delimiter=";"))
    cleaned = [
        {**row, "Sigma": float(row["Sigma"] or 0) or None, "Eps": float(row["Eps"] or 0) or None}
        for row in rows
    ]
    Path("rows").mkdir()
    Path("rows/rows.json").write_text(json.dumps(cleaned), "utf-8")
    frame = polars.DataFrame(cleaned).with_columns(polars.col("Variables").str.split(", "))
    frame.write_parquet("past.parquet")
    for number, source in enumerate(("rows", "past.parquet")):
        ledger = f"l{number}.db"
        dpolicy(f"apply policy.yaml --ledger {ledger}")
        dpolicy(f"import {source} --mapping map.yaml --ledger {ledger}")
        event = release(dpolicy, "r1", ledger)
        assert {**event, "at": ""} == {**expected, "at": ""}


def test_a_list_of_releases_needs_no_mapping(dpolicy: Any) -> None:
    Path("list.yaml").write_text(
        "- {release: a, released: 2020-02-29, mechanisms: [{mechanism: {kind: gaussian, sigma: 9},"
        " unit: patient}]}\n"
        "- {release: b, mechanisms: [{mechanism: {kind: gaussian, sigma: 9}, unit: patient}]}\n",
        "utf-8",
    )
    dpolicy("import list.yaml --ledger l.db")
    assert release(dpolicy, "a")["released"] == "2020-02-29"
    assert "released" not in release(dpolicy, "b")
    Path("list.yaml").write_text("- {release: c, released: 2020-02-30, mechanisms: []}", "utf-8")
    err = dpolicy("import list.yaml --ledger l.db", 3)[1]
    assert "error P009: there is no day `2020-02-30`" in err and "error P007" in err


def test_a_table_needs_a_mapping_and_a_folder_needs_files(dpolicy: Any) -> None:
    assert "--mapping" in dpolicy("import past.csv --ledger l.db", 64)[1]
    Path("empty").mkdir()
    assert "has no file *.csv" in dpolicy("import empty --ledger l.db", 64)[1]


def test_a_parquet_file_without_polars_names_the_extra(
    dpolicy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars.DataFrame({"Ref": ["r1"]}).write_parquet("past.parquet")
    monkeypatch.setitem(sys.modules, "polars", None)
    err = dpolicy("import past.parquet --mapping map.yaml --ledger l.db", 64)[1]
    assert "dpolicy[polars]" in err


def test_a_file_that_is_no_parquet_is_refused(dpolicy: Any) -> None:
    Path("past.parquet").write_text("no table", "utf-8")
    err = dpolicy("import past.parquet --mapping map.yaml --ledger l.db", 64)[1]
    assert "is not a readable Parquet file" in err


def test_a_day_that_no_calendar_has_is_refused(dpolicy: Any) -> None:
    days = polars.Series("Date", [2**31 - 1], polars.Int32).cast(polars.Date)
    polars.DataFrame([days]).write_parquet("past.parquet")
    err = dpolicy("import past.parquet --mapping map.yaml --ledger l.db", 64)[1]
    assert "error: `past.parquet` is not a readable Parquet file" in err


def test_no_author_of_an_import_is_exported_as_a_formula(dpolicy: Any) -> None:
    author = shlex.quote("=1+1")
    dpolicy(f"import past.csv --mapping map.yaml --ledger l.db --by {author}")
    rows = list(csv.DictReader(StringIO(dpolicy("export --to csv --ledger l.db")[0])))
    assert {row["by"] for row in rows} == {"'=1+1"}


def test_exports_have_the_own_dates_and_the_losses(dpolicy: Any) -> None:
    reason = shlex.quote("=1+1")
    dpolicy(f"import past.csv --mapping map.yaml --ledger l.db --by otto --because {reason}")
    rows = list(csv.DictReader(StringIO(dpolicy("export --to csv --ledger l.db")[0])))
    assert [(row["release"], row["released"]) for row in rows] == [
        *(("r1", "2023-03-01"), ("r2", "2023-04-05"), ("r2", "2023-04-05"))
    ]
    stated = rows[1]
    assert (stated["epsilon"], stated["delta"], stated["labels"]) == (
        *("0.5", "1e-07", "purpose=planning"),
    )
    assert (stated["author"], stated["by"], stated["because"]) == ("epi", "otto", "'=1+1")
    entries = list(yaml.safe_load_all(dpolicy("export --to registry --ledger l.db")[0]))
    days = [entry["deployment"]["basic"]["publication_date"] for entry in entries]
    assert list(map(str, days)) == ["2023-03-01", "2023-04-05"]
    Path("registry.yaml").write_text(yaml.safe_dump_all(entries), "utf-8")
    note = dpolicy("import registry.yaml --ledger l.db")[1]
    assert "already recorded, and not charged again: r1, r2" in note
    dpolicy("apply policy.yaml --ledger other.db")
    dpolicy("import registry.yaml --ledger other.db")
    assert release(dpolicy, "r1", "other.db")["released"] == "2023-03-01"
    since = json.loads(
        dpolicy("spent --ledger l.db --unit patient --since 2023-04-01 --format json")[0]
    )
    assert [row["release"] for row in since["releases"]] == ["r2"]


CELLS = st.text(st.sampled_from("ab1 ,;\"\n\r'"), max_size=5)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=4))
def test_the_csv_reader_agrees_with_that_of_python(rows: list[list[str]]) -> None:
    stream = StringIO(newline="")
    csv.writer(stream, delimiter=";", quoting=csv.QUOTE_ALL).writerows(rows)
    diagnostics = DiagnosticCollector()
    nodes = read_csv(Source("x.csv", stream.getvalue()), ";", diagnostics.report)
    stripped = [[cell.strip() for cell in row] for row in rows]
    assert [[node.text for node in row] for row in nodes] == [row for row in stripped if any(row)]
    assert not diagnostics.errors


@given(st.text(st.sampled_from('ab;\n\r"'), max_size=12))
def test_any_csv_text_is_read_or_reported(text: str) -> None:
    diagnostics = DiagnosticCollector()
    rows = read_csv(Source("x.csv", text), ";", diagnostics.report)
    if not diagnostics.errors:
        plain = csv.reader(StringIO(text, newline=""), delimiter=";", strict=True)
        expected = [[cell.strip() for cell in row] for row in plain]
        assert [[node.text for node in row] for row in rows] == [
            row for row in expected if any(row)
        ]
    for diagnostic in diagnostics.errors:
        assert 1 <= diagnostic.span.line <= text.count("\n") + text.count("\r") + 1


def test_a_cell_has_the_position_that_an_editor_displays() -> None:
    text = 'a;b\n"x\ny";z1\n"x\r\ny"; 7\n'
    rows = read_csv(Source("x.csv", text), ";", DiagnosticCollector().report)
    assert [(node.span.line, node.span.column) for row in rows for node in row] == [
        *((1, 1), (1, 3), (2, 1), (3, 4), (4, 1), (5, 4))
    ]
