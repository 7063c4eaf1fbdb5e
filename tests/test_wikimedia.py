"""The Wikimedia example prints the figures that the theory derives (theory 4.3, 4.6)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "wikimedia" / "show.py"


def test_the_four_figures() -> None:
    rows = runpy.run_path(str(SCRIPT))["rows"]()
    figures = [float(rho) for _, rho, _, _ in rows]
    assert figures == pytest.approx([0.015, 0.465, 14.415, 0.735], rel=1e-5)
    stated = [float(paper) for _, _, paper, _ in rows if paper != "-"]
    assert stated == [0.015, 14.415, 0.735]


def test_rho_is_never_above_what_is_stated() -> None:
    rows = runpy.run_path(str(SCRIPT))["rows"]()
    assert rows[0][1] <= 0.015
