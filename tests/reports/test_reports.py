"""Reports: their numbers are those of `budgets` and `spent`, and no text becomes markup."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.chromium import browser, executable

from dpolicy import DecisionPoint, load_release
from dpolicy.cli.main import exit_code
from dpolicy.ledger.events import ReleaseImported, next_record
from dpolicy.ledger.store_address import open_existing
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.rule_status import rank_by_use, used_share
from dpolicy.privacy.budget import EpsilonDelta, budget_to_json
from dpolicy.privacy.number_text import format_up
from dpolicy.privacy.risk.attacker_risk import attacker_risk, risk_of_budget
from dpolicy.privacy.risk.risk_text import format_percent
from dpolicy.releases.texts.amount_text import budget_text, loss_text
from dpolicy.reports.board_report import build_board_report
from dpolicy.reports.document import Document, DocumentTable, Section, TableColumn
from dpolicy.reports.html_page import render_html
from dpolicy.reports.ledger_facts import collect_facts
from dpolicy.reports.markdown_text import render_markdown

HOSPITAL = Path(__file__).parent.parent.parent / "examples" / "hospital"
HOSTILE = '<script>alert("x")</script> | [a](javascript:b) =1+1 https://evil.example'
#: The budget of the policy `yearly`.
YEARLY = EpsilonDelta(Fraction(8), Fraction("1e-6"))

#: Width of an A4 page between the margins, in CSS pixels.
A4_WIDTH = 672


def run(command: str) -> None:
    """Run a command that succeeds, or denies a release."""
    assert exit_code(shlex.split(command)) in (0, 2), command


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ledger of the hospital, with hostile texts."""
    path = f"{tmp_path_factory.mktemp('report')}/hospital.db"
    reason = shlex.quote(HOSTILE)
    run(f"apply {HOSPITAL}/policy.yaml --ledger {path} --by otto --because {reason}")
    mapping = f"{HOSPITAL}/spreadsheet/mapping.yaml"
    run(f"import {HOSPITAL}/spreadsheet/past.csv --mapping {mapping} --ledger {path} --by otto")
    run(f"submit {HOSPITAL}/releases/bed-planning.yaml --ledger {path}")
    run(f"submit {HOSPITAL}/releases/genome-map.yaml --ledger {path}")
    return path


@pytest.fixture
def point(ledger: str) -> Iterator[DecisionPoint]:
    point = DecisionPoint(open_existing(ledger))
    yield point
    point.close()


def report(ledger: str, out: Path, options: str = "") -> bytes:
    """Write a report to a file and return it."""
    assert exit_code(shlex.split(f"report --ledger {ledger} --out {out} {options}")) == 0
    return out.read_bytes()


def tables(ledger: str, tmp_path: Path, kind: str = "board") -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables by section, and by title if a table has one."""
    document = json.loads(report(ledger, tmp_path / "r.json", f"--kind {kind}"))
    return {
        block["table"] or section["heading"]: block["rows"]
        for section in document["sections"]
        for block in section["blocks"]
        if "table" in block
    }


class Page(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.rows[-1][-1] += data


def test_used_rules_are_those_of_budgets(ledger: str, point: DecisionPoint, tmp_path: Path) -> None:
    rows = tables(ledger, tmp_path)["Most used rules"]
    statuses = sorted(point.budgets(), key=rank_by_use)
    assert len(rows) == 12
    for row, status in zip(rows, statuses, strict=False):
        share = used_share(status)
        assert (row["Rule"], row["For each"]) == (status.name, status.unit)
        assert row["Used"] == loss_text(status.spent, status.budget)
        assert row["Limit"] == budget_text(status.budget)
        assert row["Share"] == (None if share is None else float(share))
    exceeded = [status.name for status in statuses if not status.holds]
    conflicts = tables(ledger, tmp_path)["Open conflicts"]
    assert [row["Rule"] for row in conflicts] == exceeded == ["per-category[diagnoses, member]"]


def test_spending_is_that_of_spent(ledger: str, point: DecisionPoint, tmp_path: Path) -> None:
    found = tables(ledger, tmp_path)
    for row in found["By unit"]:
        spending = point.spent(unit=row["For each"])
        risk = attacker_risk(spending.cost, spending.delta)
        assert (row["ε"], row["Releases"]) == (spending.epsilon, spending.release_count)
        assert row["A belief of 50\u00a0% grows to at most"] == risk.posterior(0.5)
    categories = {row["Category"]: row for row in found["By category and unit"]}
    assert len(categories) == 8
    costs = ["case-cost", "billing-code", "payer", "co-payment", "drug-cost", "unpaid-bill"]
    scope = " || ".join(f'"{name}" in attributes' for name in costs)
    for unit in ("patient", "patient-year", "patient-month"):
        assert categories["costs"][f"ε for each {unit}"] == point.spent(scope, unit=unit).epsilon
    total = point.spent(unit="patient")
    assert [(row["By"], row["ε"]) for row in found["By author"]] == [
        (share.by, share.epsilon) for share in total.authors
    ]
    assert found["By release"][0]["Release"] == total.releases[0].name


def test_the_trend_ends_at_the_total_and_counts_by_the_own_dates(
    ledger: str, point: DecisionPoint, tmp_path: Path
) -> None:
    rows = tables(ledger, tmp_path)["Trend by month"]
    assert rows[-1]["ε of all until then"] == point.spent(unit="patient").epsilon
    assert sum(row["Releases"] for row in rows) == 21
    assert (rows[0]["Month"], rows[0]["Releases"]) == ("2023-04", 1)
    last_months = point.spent(unit="patient", since=f"{rows[-2]['Month']}-01")
    assert last_months.release_count == rows[-1]["Releases"] + rows[-2]["Releases"]


def test_promises_are_the_budgets_in_words(
    ledger: str, point: DecisionPoint, tmp_path: Path
) -> None:
    rows = tables(ledger, tmp_path)["Promises"]
    limits = {(row["For each"], row["Limit"]): row for row in rows}
    assert point.policy is not None
    for rule in point.policy.rules:
        row = limits[rule.unit, budget_text(budget_to_json(rule.budget))]
        bound = risk_of_budget(rule.budget).posterior(0.5)
        assert row["A belief of 50\u00a0% grows to at most"] == bound
    words = {row["Policy"]: row["Applies to"] for row in rows}
    assert words["public"] == 'releases with labels.audience == "public"'
    assert words["one-release"] == "all releases, each alone"


def test_the_attestation_names_the_last_record(ledger: str, tmp_path: Path, capsys: Any) -> None:
    lines = csv.DictReader(StringIO(report(ledger, tmp_path / "r.csv").decode()))
    facts = {line["column"]: line["value"] for line in lines if line["section"] == "Attestation"}
    capsys.readouterr()
    run(f"verify --ledger {ledger} --format json")
    audit = json.loads(capsys.readouterr().out)
    assert facts["Last verified record"] == str(audit["records"])
    assert facts["Hash of that record"] == audit["head"]
    assert facts["Result of dpolicy verify"].startswith("verified")


@pytest.mark.parametrize("kind", ["board", "dossier", "statement"])
def test_a_page_has_no_scripts_and_loads_nothing(ledger: str, tmp_path: Path, kind: str) -> None:
    text = report(ledger, tmp_path / "r.html", f"--kind {kind}").decode()
    page = Page(text)
    assert page.tags.isdisjoint({"script", "img", "iframe", "link", "object", "a", "form"})
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("href", "src")}
    assert "url(" not in text and "@import" not in text
    if kind == "board":
        assert "&lt;script&gt;alert" in text
        assert any(HOSTILE in cell for row in page.rows for cell in row)


def test_all_formats_have_the_same_cells(point: DecisionPoint, ledger: str) -> None:
    store = open_existing(ledger)
    facts = collect_facts(store, point, datetime(2026, 11, 18, tzinfo=UTC))
    document = build_board_report(point, facts)
    texts = [
        row
        for section in document.sections
        for block in section.blocks
        if isinstance(block, DocumentTable)
        for row in block.texts()
    ]
    cells = [row for row in Page(render_html(document)).rows if row]
    assert [row for row in cells if row in texts] == texts
    markdown = render_markdown(document).splitlines()
    rows = [line for line in markdown if line.startswith("| ")]
    headers = sum(
        isinstance(b, DocumentTable) and bool(b.rows) for s in document.sections for b in s.blocks
    )
    assert len(rows) == len(texts) + headers
    store.close()


def test_markdown_and_csv_do_not_read_texts_as_markup(ledger: str, tmp_path: Path) -> None:
    text = report(ledger, tmp_path / "r.md").decode()
    (line,) = [line for line in text.splitlines() if "alert" in line]
    assert line.count(" | ") == 5  # six columns
    assert "<script>" not in text and "[a](" not in text and "https://evil" not in text
    lines = list(csv.reader(StringIO(report(ledger, tmp_path / "r.csv").decode())))
    assert not [cell for line in lines for cell in line if cell[:1] in ("=", "+", "@")]


def test_a_statement_names_no_author_and_no_id(
    ledger: str, point: DecisionPoint, tmp_path: Path
) -> None:
    text = report(ledger, tmp_path / "r.md", "--kind statement").decode()
    names = {*point.entries, "otto", "epidemiology", "oncology", "finance", "informatics"}
    assert not [name for name in names if name in text]
    assert "labels." not in text and "Infection rates" not in text
    rows = tables(ledger, tmp_path, "statement")["Releases"]
    assert len(rows) == 21
    spent = point.spent('"infection" in attributes', unit="patient").releases[0].epsilon
    assert spent is not None
    assert {**rows[0], "ε": format_up(rows[0]["ε"])} == {
        "Month": "2023-04",
        "Data": "infection, ward",
        "Period of the data": "2023-01-01 to 2023-03-31",
        "Protected unit": "patient",
        "Method": "gaussian",
        "ε": format_up(spent),
        "δ": 1e-06,
    }


def test_a_dossier_follows_the_two_orders_and_marks_blanks(ledger: str, tmp_path: Path) -> None:
    document = json.loads(report(ledger, tmp_path / "r.json", "--kind dossier"))
    headings = [section["heading"] for section in document["sections"]]
    words = [
        *("SP 800-226", "privacy parameters", "variant", "unit of privacy", "mechanisms", "bias"),
        *("trust model", "implementation", "security", "exposure", "impact assessment"),
        *("35(7)(a)", "35(7)(b)", "35(7)(c)", "35(7)(d)", "35(2)", "Attestation"),
    ]
    assert len(headings) == len(words)
    assert all(word in heading for word, heading in zip(words, headings, strict=True))
    blanks = [b["blank"] for s in document["sections"] for b in s["blocks"] if "blank" in b]
    assert len(blanks) >= 15
    text = report(ledger, tmp_path / "r.md", "--kind dossier").decode()
    assert text.count("**To be filled in:**") == len(blanks)


def test_a_browser_prints_a_pdf(
    ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert executable()
    assert report(ledger, tmp_path / "r.pdf").startswith(b"%PDF-")
    monkeypatch.setenv("PATH", str(tmp_path))
    command = f"report --ledger {ledger} --out {tmp_path}/none.pdf"
    assert exit_code(shlex.split(command)) == 64
    assert "needs Chromium" in capsys.readouterr().err
    assert not (tmp_path / "none.pdf").exists()
    assert exit_code(shlex.split(f"report --ledger {ledger} --format pdf")) == 64


def test_no_page_is_wider_than_the_paper(ledger: str, tmp_path: Path) -> None:
    long = "x" * 100
    table = DocumentTable(
        (TableColumn(long), TableColumn(long, is_short=True)), ((long, long), (long, "y"))
    )
    pages = [report(ledger, tmp_path / "r.html", f"--kind {k}") for k in ("board", "statement")]
    pages.append(
        render_html(Document("board", long, long, (Section(long, (table,)),))).encode("utf-8")
    )
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": A4_WIDTH, "height": 900})
        page.emulate_media(media="print")
        for text in pages:
            page.set_content(text.decode("utf-8"))
            assert page.evaluate("document.documentElement.scrollWidth") <= A4_WIDTH


def test_a_ledger_without_a_policy_has_no_report(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "empty.db"
    point = DecisionPoint(path)
    point.import_past(
        {"release": "a", "mechanisms": [{"mechanism": {"kind": "laplace", "scale": 1}}]}
    )
    point.close()
    assert exit_code(["report", "--ledger", str(path)]) == 64
    assert "no active policy" in capsys.readouterr().err
    assert exit_code(["report", "--ledger", str(tmp_path / "none.db")]) == 1


def test_a_ledger_that_does_not_verify_has_a_report_that_states_it() -> None:
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(HOSPITAL)
    body = load_release(HOSPITAL / "releases" / "bed-planning.yaml").body
    event = point.event(point.import_past(body))
    assert isinstance(event, ReleaseImported)
    forged = replace(event, release="x", body={**event.body, "release": "x"}, released="2999-01-01")
    with store.open_for_writing() as log:
        log.append([next_record(list(store.records_after(0))[-1], forged)])
    facts = collect_facts(store, point, datetime(2026, 11, 18, tzinfo=UTC))
    text = render_markdown(build_board_report(point, facts))
    assert "**Result of dpolicy verify:** FAILED" in text
    assert "**Ledger:** NOT VERIFIED" in text
    assert "Record 3: the date 2999-01-01 of a past release is in the future" in text


def test_the_beliefs_of_a_report_are_those_of_the_risk_command(ledger: str, tmp_path: Path) -> None:
    text = report(ledger, tmp_path / "r.md").decode()
    row = next(line for line in text.splitlines() if line.startswith("| yearly | all releases"))
    assert row.split("|")[5].strip() == format_percent(risk_of_budget(YEARLY).posterior(0.5))
    assert row.split("|")[5].strip() != "100 %"
    (sentence,) = [line for line in text.splitlines() if line.startswith("All 21 releases")]
    assert sentence.endswith(". A larger belief has a probability of at most 1e-06.")


def test_rules_that_share_a_line_have_separate_limits(ledger: str, tmp_path: Path) -> None:
    scopes = [row["Applies to"] for row in tables(ledger, tmp_path)["Promises"]]
    each = "; a separate limit for each"
    assert (
        f"releases that use one of identity (member), diagnoses (member){each} category" in scopes
    )
    assert f"releases that use one of 18 attributes{each} attribute" in scopes
    assert "releases that use costs (weak)" in scopes
    assert "all releases, each alone" in scopes


def test_an_unknown_end_of_a_name_is_refused(
    ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.docx"
    assert exit_code(["report", "--ledger", ledger, "--out", str(out)]) == 64
    assert "`.docx` is no known format: use .html" in capsys.readouterr().err
    assert not out.exists()
    assert report(ledger, out, "--format html").startswith(b"<!doctype html>")
