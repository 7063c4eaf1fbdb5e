"""Run every case file in `tests/cases/decisions` and `tests/cases/regions`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpolicy.cases.case_file import load_case
from dpolicy.cases.runner import run_case

FOLDER = Path(__file__).parent.parent / "cases" / "decisions"
CASES = sorted([*FOLDER.glob("*_test.yaml"), *FOLDER.parent.glob("regions/*_test.yaml")])


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case(file: Path) -> None:
    wrong = [o for o in run_case(load_case(file)) if o.problem is not None]
    assert not wrong, "\n".join(f"{o.position}: {o.step}: {o.problem}" for o in wrong)


def test_there_are_cases() -> None:
    assert len(CASES) >= 25


def test_a_wrong_expectation_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cap.yaml").write_text((FOLDER / "cap.yaml").read_text("utf-8"), "utf-8")
    text = (FOLDER / "cap_test.yaml").read_text("utf-8").replace("1.001", "0.999")
    (tmp_path / "wrong_test.yaml").write_text(text, "utf-8")
    outcomes = list(run_case(load_case(tmp_path / "wrong_test.yaml")))
    assert [bool(o.problem) for o in outcomes].count(True) == 1
