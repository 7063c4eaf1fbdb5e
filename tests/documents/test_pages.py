"""Every example in the README and the docs runs, and prints what the page prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.documents.markdown_blocks import ROOT, Block, is_output, read_blocks, read_commands
from tests.documents.session import Session

#: Pages that `docs/generate.py` writes from real output; tests/cli compares them.
GENERATED = {"docs/commands.md", "docs/diagnostics.md", "docs/http-api.md", "docs/modules.md"}

#: Pages whose example needs data, a model or a library; a test passes them to `run_example`.
WITH_DATA = {
    f"docs/integrations/{name}.md"
    for name in (
        *("cohere", "contributions", "diffprivlib", "dp-accounting", "gate", "opacus", "opendp"),
        *("pipelinedp", "smartnoise", "tumult", "tuning"),
    )
}
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/*.md")
    for page in ROOT.glob(pattern)
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [p for p in PAGES if p not in GENERATED | WITH_DATA])
def test_examples_run_and_print_what_the_page_prints(name: str, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        for block in read_blocks(ROOT / name):
            session.run(block)


@pytest.mark.parametrize("name", sorted(WITH_DATA))
def test_a_page_with_data_has_the_one_example_that_a_test_runs(name: str) -> None:
    (example,) = read_blocks(ROOT / name)
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert example.language == "python"
    assert re.search(rf'run_example\(\s*"{Path(name).stem}"', tests)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_to_a_file_has_a_target(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert ":" in target or (page.parent / target).exists(), target


def test_there_are_pages_with_examples() -> None:
    assert len(PAGES) > 40
    assert set(PAGES) >= GENERATED | WITH_DATA
    assert sum(1 for name in PAGES for _ in read_blocks(ROOT / name)) > 50


# The harness can fail


def block(text: str, language: str = "console", directive: str = "") -> Block:
    """Return a block of a page."""
    return Block(language, text, 1, directive)


@pytest.mark.parametrize(
    "failing",
    [
        block("$ echo one\ntwo\n"),
        block("$ echo one\n"),
        block("$ false\n"),
        block("false\n", "sh"),
        block("assert False\n", "python"),
        block("{}\n", "json"),
        block("denied  a\n", ""),
        block("make test\n"),
        block("$ make no-such-target\n", directive="long: takes minutes"),
        block(">>> 1 + 1\n3\n", "pycon"),
        block("1 + 1\n", "pycon"),
        block("$ dpolicy check examples/web-analytics/mistakes/no-catch-all.yaml\n"),
        block("$ dpolicy rules --no-such-option\n", directive="long: takes minutes"),
    ],
)
def test_an_example_that_is_wrong_fails(failing: Block, tmp_path: Path) -> None:
    with pytest.raises(AssertionError), Session(tmp_path) as session:
        session.run(failing)


def test_a_page_is_one_session(tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        session.run(block("x: 1\n", "yaml", "file: a/b.yaml"))
        session.run(block("$ cat a/b.yaml\nx: 1\n"))
        session.run(block("number = 2\n", "python"))
        session.run(block("print(number)\n", "python"))
        session.run(block("2\n", "text", "output"))
        session.run(block(">>> number += 1\n", "pycon"))
        session.run(block(">>> number\n3\n", "pycon"))


def test_commands_and_outputs() -> None:
    commands = list(read_commands(block("$ a 'b\n  c'\nout\n$ d \\\n  e\n")))
    assert [(c.text, c.output) for c in commands] == [("a 'b\n  c'", "out\n"), ("d \\\n  e", "")]
    assert is_output("a …\n…\nz\n", "a b\nc\nd\nz\n")
    assert not is_output("a …\nz\n", "a b\nc\nz\n")
    assert is_output("", "")
