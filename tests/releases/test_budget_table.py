"""Budgets are a list that prints as a table and turns into a frame, without wrong numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pdp.builders import GLOBAL, ZIP, body, mechanism, pure, started

from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.releases.python.budget_table import Budgets

RULES = (
    GLOBAL,
    ZIP % "{rho: 0.5}",
    "  - {name: curve, kind: custom, when: '\"views\" in attributes', unit: user,"
    " budget: {renyi: {2: 0.3, 8: 1.2}}}\n",
)


@dataclass
class Row:
    """A status with freely chosen numbers."""

    spent: Mapping[str, float | None]
    budget: Mapping[str, Any] | str = field(default_factory=lambda: {"epsilon": 2.0})
    name: str = "global"
    unit: str = "user"
    delta_limit: float | None = None
    holds: bool = True
    spenders: tuple[str, ...] = ()
    location: Mapping[str, str | int] = field(default_factory=dict)


def used_budgets() -> Budgets[RuleStatus]:
    point = started(*RULES)
    point.submit(pure("a", "0.5", "zip"))
    point.import_past(body("b", mechanism(("views",), kind="gaussian", sigma="1.5")))
    return point.budgets()


def test_budgets_are_a_list() -> None:
    budgets = used_budgets()
    assert isinstance(budgets, list) and len(budgets) == 3
    assert isinstance(budgets[:2], Budgets) and list(budgets[:2]) == [budgets[0], budgets[1]]
    assert repr(Budgets([])) == "no rules"


def test_the_table_has_one_line_per_rule_with_the_most_used_first() -> None:
    header, *lines = repr(used_budgets()).splitlines()
    assert header.split() == ["used", "rule", "unit", "spent", "budget"]
    assert [line.split("%")[1].split()[0] for line in lines] == ["global", "curve", "zips"]
    assert lines[1].endswith("exceeded") and "rényi 2 0.444445, rényi 8 1.77778" in lines[1]
    assert len(repr(used_budgets())) < 1_000


def test_a_frame_has_the_numbers_of_the_statuses() -> None:
    budgets = used_budgets()
    rows = budgets.rows()
    assert [row["rule"] for row in rows] == [status.rule.name for status in budgets]
    for status, row in zip(budgets, rows, strict=True):
        assert row["holds"] is status.holds and row["unit"] == status.unit
        for notion, loss in status.spent.items():
            assert row[f"spent_{notion.replace(' ', '_')}"] == (math.inf if loss is None else loss)
    assert rows[0]["budget_epsilon"] == 2.0 and rows[0]["budget_delta"] == 1e-7
    assert rows[1]["budget_epsilon"] is None and rows[1]["budget_rho"] == 0.5
    pandas, polars = budgets.to_pandas(), budgets.to_polars()
    assert list(pandas.columns) == polars.columns == list(rows[0])
    assert polars.to_dicts() == rows
    assert pandas["rule"].tolist() == polars["rule"].to_list()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"pip install 'dpolicy\[{library}\]'"):
        getattr(used_budgets(), f"to_{library}")()


def test_the_notion_of_which_most_is_used_counts() -> None:
    budget = {"epsilon": 2.0, "delta": 1e-8}
    stated = Row({"epsilon": 0.2, "delta": 5e-9}, budget, delta_limit=1e-8)
    rows = Budgets([stated, Row({"epsilon": None}, budget)])
    assert [row["used"] for row in rows.rows()] == [0.5, math.inf]
    assert "stated δ 1e-08" in repr(rows)
    assert rows.rows()[1]["spent_epsilon"] == math.inf
    assert "∞" in repr(rows) and "δ 5e-09" in repr(rows)
    assert Budgets([Row({"rho": 4.0}, "unlimited")]).rows()[0]["used"] == 0
    no_delta = Row({"rho": 0.1, "delta": 1e-9}, {"rho": 1.0}, delta_limit=0.0)
    assert Budgets([no_delta]).rows()[0]["used"] == math.inf


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_no_printed_share_is_below_the_exact_one(spent: float, limit: float) -> None:
    table = repr(Budgets([Row({"epsilon": spent}, {"epsilon": limit})]))
    percent = float(table.splitlines()[1].split("%")[0])
    assert percent >= 100 * spent / limit * (1 - 1e-12)
    assert percent <= 100 * spent / limit * (1 + 1e-12) + 1


def test_a_full_percentage_is_not_rounded_up() -> None:
    row = Row({"epsilon": 0.07}, {"epsilon": 1.0})
    assert "7 %" in repr(Budgets([row])), "7.01 % would be the error of a float"


def test_html_is_escaped_and_long_tables_are_cut() -> None:
    attack = "<script>alert(1)</script>"
    rows = Budgets([Row({"epsilon": 1.0}, name=attack, location={"country": attack})] * 30)
    html = rows._repr_html_()
    assert "<script" not in html and html.count("&lt;script&gt;") == 50
    assert "… and 5 more rows" in html and "… and 5 more rows" in repr(rows)
    assert "\x1b" not in repr(Budgets([Row({"epsilon": 1.0}, name="\x1b[31mred")]))
