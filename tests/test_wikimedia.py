"""The Wikimedia example prints the figures that the theory derives (theory 4.3, 4.6)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "wikimedia"
SCRIPT = FOLDER / "show.py"


def test_the_four_costs_equal_the_stated_figures() -> None:
    rows = runpy.run_path(str(SCRIPT))["rows"]()
    figures = [float(rho) for _, rho, _, _ in rows]
    assert figures == pytest.approx([0.015, 0.465, 14.415, 0.735], rel=1e-5)
    stated = [float(paper) for _, _, paper, _ in rows if paper != "-"]
    assert stated == [0.015, 14.415, 0.735]


def test_the_daily_cost_is_at_most_the_stated_figure() -> None:
    rows = runpy.run_path(str(SCRIPT))["rows"]()
    assert rows[0][1] <= 0.015


def test_a_year_of_daily_releases_is_allowed() -> None:
    allowed, worst = runpy.run_path(str(FOLDER / "year.py"))["year"]()
    assert allowed == 365
    spent = {unit: rho for unit, (_, rho) in worst.items()}
    days = {"user-day": 1, "user-week": 7, "user-month": 31, "user": 365}
    assert spent == pytest.approx({unit: 0.015 * n for unit, n in days.items()}, rel=1e-5)


def test_a_lifetime_budget_ends_the_releases_as_the_page_states() -> None:
    lasts = runpy.run_path(str(FOLDER / "year.py"))["lasts"]
    page = (FOLDER / "README.md").read_text("utf-8")
    for epsilon in (2, 5, 10):
        assert f"with ε {epsilon} for ever, they end after {lasts(epsilon)} days" in page
