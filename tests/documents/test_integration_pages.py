"""Examples on pages of docs/integrations that need files or frames, but no other library."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from tests.documents.markdown_blocks import ROOT
from tests.gated.pages import run_example

from dpolicy import DecisionPoint
from dpolicy.integrations import cohere
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source


def test_the_example_of_the_cohere_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("schema.json", "requests_11.json"):
        shutil.copy(ROOT / "tests" / "data" / "cohere" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    point = DecisionPoint(":memory:")
    point.apply(ROOT / "examples" / "paper" / "cohere")
    variables = run_example("cohere", point=point)
    assert variables["problems"] == ()
    assert isinstance(variables["schema"], cohere.CohereSchema)
    assert variables["decision"].release == variables["body"]["release"]


def test_the_example_of_the_contributions_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-day: {period: day}, user-month: {period: month}}
policies: [{name: all, kind: custom, when: always, unit: user, budget: {epsilon: 100}}]
"""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "policy.yaml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    days = pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 1, 31), eager=True)
    frame = pl.DataFrame({"user": "ada", "day": days, "key": range(len(days))})
    variables = run_example("contributions", frame=frame)
    assert variables["kept"].height == 31
    point = DecisionPoint(":memory:")
    point.apply(compile_policy([Source("policy.yaml", text)]))
    decision = point.submit({"release": "a", "mechanisms": [variables["mechanism"]]})
    assert decision.allowed
