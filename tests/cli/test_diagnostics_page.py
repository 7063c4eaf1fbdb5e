"""Diagnostic codes: each has a title, an example that causes exactly it, and a section."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from docs.generator.code_families import FAMILIES, family_for, severity
from docs.generator.diagnostics_page import diagnostics_page
from docs.generator.examples import (
    EXAMPLES,
    SHARED_FILES,
    CommandResult,
    example_code,
    example_names,
    load_example,
    run_example,
)

from dpolicy.cli.exit_codes import REJECTED, USAGE

SOURCE = Path(__file__).parent.parent.parent / "src" / "dpolicy"
PAGE = SOURCE.parent.parent / "docs" / "diagnostics.md"

TITLES = {code: title for family in FAMILIES for code, title in family.titles.items()}

#: Names of the tables, in which a code is a key and is not raised.
TABLES = {"CATALOGUE", "PROBLEMS"}

CODE = re.compile(r"[A-Z][0-9]{3}")

#: Codes after which a command exits with 64 instead of 3, as the page states.
WRONG_USAGE = {"P047", "M019", "U001", "U002", "Q001", "Q002", "Q003", "Q004", "Q005"}


@cache
def results(name: str) -> tuple[CommandResult, ...]:
    return run_example(load_example(name, family_for(name)))


def printed_codes(text: str) -> set[str]:
    return set(re.findall(rf"\b{CODE.pattern}\b", text))


def raised_codes(text: str) -> set[str]:
    """Return the codes in a module that are neither keys of a table nor compared with."""
    tree = ast.parse(text)
    ignored = {id(node) for node in _table_keys(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            ignored |= {id(operand) for operand in (node.left, *node.comparators)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in ignored
        if isinstance(node.value, str) and CODE.fullmatch(node.value)
    }


def _table_keys(tree: ast.Module) -> Iterator[ast.expr]:
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)):
                yield from (key for key in keys if key is not None and name in TABLES)


def differences(texts: Iterable[str], titles: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the raised codes without a title, and the codes with a title that no text raises."""
    raised = set[str]().union(*(raised_codes(text) for text in texts))
    return raised - set(titles), set(titles) - raised


def test_the_raised_codes_are_the_codes_with_a_title() -> None:
    texts = [path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))]
    assert differences(texts, TITLES) == (set(), set())


def test_the_comparison_of_codes_can_fail() -> None:
    text = 'PROBLEMS: dict[str, str] = {"X001": "a"}\n'
    raising = 'raise InvalidValue("X001", "message")\n'
    titles = {"X001": "a"}
    assert differences([text], titles) == (set(), {"X001"})
    assert differences([text, 'ok = error.code == "X001"\n'], titles) == (set(), {"X001"})
    assert differences([text, raising], titles) == (set(), set())
    assert differences([text, raising, raising.replace("1", "2")], titles) == ({"X002"}, set())


def test_every_code_has_the_letter_of_its_family() -> None:
    for family in FAMILIES:
        assert {code[0] for code in family.titles} == {family.letter}
        assert set(family.explanations) <= set(family.titles)
    assert len({family.letter for family in FAMILIES}) == len(FAMILIES)


def test_titles_and_explanations_have_one_style() -> None:
    for family in FAMILIES:
        for code, title in family.titles.items():
            assert not title.endswith("."), code
        for code, explanation in family.explanations.items():
            assert explanation.endswith("."), code


def test_every_code_has_one_example_and_every_example_a_code() -> None:
    assert sorted(map(example_code, example_names())) == sorted(TITLES)


def test_examples_have_no_unused_files() -> None:
    used: set[str] = set()
    for name in example_names():
        example = load_example(name, family_for(name))
        assert example.commands, name
        used |= set(example.files.values())
        used |= {command + "\n" for command in example.commands}
    for path in EXAMPLES.iterdir():
        assert path == SHARED_FILES or path.read_text("utf-8") in used, path.name
    shared = {name for family in FAMILIES for name in family.shared_files}
    assert {path.name for path in SHARED_FILES.iterdir()} == shared


@pytest.mark.parametrize("name", example_names())
def test_an_example_causes_exactly_its_code(name: str) -> None:
    *before, last = results(name)
    assert printed_codes(last.output) == {example_code(name)}
    assert [(result.exit_code, printed_codes(result.output)) for result in before] == [
        (0, set()) for _ in before
    ]


@pytest.mark.parametrize("name", example_names())
def test_the_exit_code_is_the_one_that_the_page_states(name: str) -> None:
    code, last = example_code(name), results(name)[-1]
    if severity(code) == "warning" or last.command.startswith("python "):
        assert last.exit_code == 0
    else:
        assert last.exit_code == (USAGE if code in WRONG_USAGE else REJECTED)


def test_the_page_states_the_exit_codes() -> None:
    introduction = PAGE.read_text("utf-8").split("\n## ")[0]
    assert printed_codes(introduction) == WRONG_USAGE
    assert f"exit code {REJECTED}" in introduction and f"exit code is {USAGE}" in introduction


def test_the_page_has_a_link_and_a_section_for_every_code() -> None:
    page = PAGE.read_text("utf-8")
    sections = re.findall(r"^### (.+)$", page, re.MULTILINE)
    links = re.findall(r"^\| \[(.+?)\]\(#(.+?)\) \|", page, re.MULTILINE)
    assert sections == list(TITLES)
    assert links == [(code, code.lower()) for code in TITLES]


def test_the_page_links_to_headings_that_exist() -> None:
    page = PAGE.read_text("utf-8")
    headings = re.findall(r"^##+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#(.+?)\)", page)) <= anchors


def test_generating_twice_gives_the_same_page() -> None:
    assert diagnostics_page() == diagnostics_page()
