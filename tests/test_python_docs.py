"""The Python examples of the docs run, and print what the docs state."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
from tests.service.servers import activate_policy, serving

DOCS = Path(__file__).parent.parent / "docs"
RELEASE = """\
release: views-2026-10-28
by: ana@example.org
mechanisms:
  - {name: histogram, mechanism: {kind: gaussian, sigma: 4}, attributes: [page-views]}
"""


def code_blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_sessions_of_the_python_page_print_what_it_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (policy,) = code_blocks("python.md", "yaml")
    Path("policy.yaml").write_text(policy, "utf-8")
    Path("release.yaml").write_text(RELEASE, "utf-8")
    sessions = "\n".join(code_blocks("python.md", "pycon"))
    test = doctest.DocTestParser().get_doctest(sessions, {}, "python.md", None, 0)
    assert len(test.examples) >= 10
    outcome = doctest.DocTestRunner().run(test)
    assert outcome.failed == 0, capsys.readouterr().out


def test_the_page_of_releases_has_a_working_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policies").mkdir()
    Path("policies/policy.yaml").write_text(code_blocks("python.md", "yaml")[0], "utf-8")
    Path("release.yaml").write_text(RELEASE, "utf-8")
    (code,) = code_blocks("releases.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["decision"].allowed and names["decision"].sequence == 2


def test_the_page_of_the_service_has_a_working_example(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    activate_policy(ledger)
    (code,) = code_blocks("http.md", "python")
    with serving(ledger) as server:
        stated = "[...]", "http://127.0.0.1:8500"
        assert all(text in code for text in stated)
        mechanisms = '[{"mechanism": {"kind": "declared", "epsilon": 0.5}}]'
        names: dict[str, Any] = {"token": None}
        exec(code.replace(stated[0], mechanisms).replace(stated[1], server.url), names)
    assert names["decision"]
