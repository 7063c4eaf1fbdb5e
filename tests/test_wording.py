"""Ratchet of words and names: limits that only go down (docs/glossary.md, tests/wording.py)."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests import wording

#: Idioms per 10,000 words, counts and shares. Lower a limit when the number falls; never raise it.
LIMITS = {
    "docs": 0.5,
    "docstrings": 0.5,
    "messages": 2.5,  # two quote messages of the YAML and CEL libraries
    "comments": 0.5,
    "templates": 0.5,
    "banned names": 0.0,
    "participles, per cent": 2.1,
    "functions *_of": 0.0,
}
MAX_MODULES = 12


@pytest.fixture(scope="module")
def totals() -> dict[str, float]:
    return wording.totals()


@pytest.mark.parametrize("name", LIMITS)
def test_no_total_exceeds_its_limit(name: str, totals: dict[str, float]) -> None:
    assert totals[name] <= LIMITS[name], "python -m tests.wording src docs lists every place"


def test_every_total_has_a_limit(totals: dict[str, float]) -> None:
    assert totals.keys() == LIMITS.keys()


@pytest.mark.parametrize("idiom", wording.EXAMPLES)
def test_every_idiom_is_counted(idiom: str) -> None:
    assert idiom in wording.IDIOMS
    assert wording.count_idioms(wording.EXAMPLES[idiom])[idiom] == 1


def test_every_idiom_has_an_example() -> None:
    assert wording.EXAMPLES.keys() == wording.IDIOMS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "The release was not found.",
        "The server returns the recorded decision.",
        "See figure 3 of the paper.",
        "`what was told` is code",
    ],
)
def test_plain_sentences_are_not_counted(text: str) -> None:
    assert wording.count_idioms(wording.prose_of_markdown(text)).total() == 0


def test_code_is_not_counted_as_prose() -> None:
    page = "Text.\n```console\n$ said told found\n```\nMore `nobody` text.\n"
    assert wording.rate([wording.prose_of_markdown(page)]) == 0


def test_names_are_counted_wherever_they_are_bound() -> None:
    text = "def f(said, *, told=1):\n    for found in []: self.seen = [asked for asked in shown]"
    names = [name for _, name in wording.bound_names(ast.parse(text))]
    assert set(names) >= {"said", "told", "found", "seen", "asked"}


@pytest.mark.parametrize("name", ["told", "_decided", "rules_matched", "charges_added"])
def test_a_participle_is_recognised(name: str) -> None:
    assert wording.is_participle(name)


@pytest.mark.parametrize("name", ["is_allowed", "recorded_decision", "decide", "random_seed"])
def test_a_verb_a_noun_and_a_predicate_are_not_participles(name: str) -> None:
    assert not wording.is_participle(name)


def _repeated(names: list[tuple[str, str]]) -> list[str]:
    """Return "name: places" for every name that occurs more than once."""
    counts = Counter(name for name, _ in names)
    return [
        f"{name}: {', '.join(place for other, place in names if other == name)}"
        for name, count in counts.items()
        if count > 1
    ]


def _place(path: Path) -> str:
    return str(path.relative_to(wording.SOURCE))


def test_no_public_class_name_exists_twice() -> None:
    names = [
        (name, _place(path))
        for path in wording.sources()
        for name in wording.public_types(ast.parse(path.read_text("utf-8")))
    ]
    assert not _repeated(names)


def test_no_module_name_exists_twice() -> None:
    commands = wording.SOURCE / "cli" / "commands"
    names = [
        (path.stem, _place(path))
        for path in wording.sources()
        if path.name != "__init__.py" and not path.is_relative_to(commands)
    ]
    assert not _repeated(names)


def test_a_repeated_name_is_reported() -> None:
    assert _repeated([("a", "x"), ("b", "y"), ("a", "z")]) == ["a: x, z"]


def test_no_directory_is_crowded() -> None:
    sizes = Counter(p.parent for p in wording.sources() if p.name != "__init__.py")
    assert not {_place(d): n for d, n in sizes.items() if n > MAX_MODULES}
