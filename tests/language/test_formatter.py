"""The laws of the formatter: it says the same, once is enough, and no comment is lost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.language.generated import Layout, Number, canonical, policy_sets
from tests.language.reading import ROOT, model

from dpolicy.policy.formatter import WIDTH, format_text, policy_digest
from dpolicy.policy.parser import parse_policies
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import MapNode, ScalarNode, Source, read_nodes

POLICY = {"name": "cap", "kind": "custom", "when": "always", "unit": "user"}

LAWS = settings(
    max_examples=60,
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def formatted(text: str) -> str:
    found = DiagnosticCollector()
    source = Source("t.yaml", text)
    root = read_nodes(source, found.report)
    assert root is not None, [str(d) for d in found.sorted_diagnostics]
    assert not found.errors
    return format_text(source, root)


@LAWS
@given(policy_sets, st.data())
def test_layout_says_nothing(value: dict[str, Any], data: st.DataObject) -> None:
    text = Layout(data.draw).text(value)
    assert model(text) == model(canonical(value))
    assert policy_digest(model(text)) == policy_digest(model(canonical(value)))


@LAWS
@given(policy_sets, st.data())
def test_formatting_keeps_the_meaning_and_every_comment(
    value: dict[str, Any], data: st.DataObject
) -> None:
    layout = Layout(data.draw)
    text = layout.text(value)
    once = formatted(text)
    assert model(once) == model(text)
    assert formatted(once) == once
    for comment in layout.comments:
        assert comment in once


@LAWS
@given(policy_sets, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_keys(
    value: dict[str, Any], random: Any
) -> None:
    def shuffled(node: Any) -> Any:
        if isinstance(node, list):
            return [shuffled(item) for item in node]
        if not isinstance(node, dict):
            return node
        keys = list(node)
        random.shuffle(keys)
        return {key: shuffled(node[key]) for key in keys}

    assert policy_digest(model(canonical(value))) == policy_digest(
        model(canonical(shuffled(value)))
    )


@LAWS
@given(policy_sets, st.data())
def test_the_digest_changes_with_any_number(value: dict[str, Any], data: st.DataObject) -> None:
    value = {**value, "each-release": [{**POLICY, "budget": {"rho": Number("1.5")}}]}
    places = [path for path in numbers_in(value) if path != ("dpolicy",)]
    path = data.draw(st.sampled_from(places))
    old = Fraction(at(value, path).text)
    new = data.draw(st.sampled_from(["3", "0.5", "7e-1", "0.0625", "11"]))
    assume(Fraction(new) != old)
    changed = replaced(value, path, Number(new))
    found = DiagnosticCollector()
    other = parse_policies([Source("t.yaml", canonical(changed))], found)
    assume(not found.errors and other is not None)
    assert other is not None
    assert policy_digest(other) != policy_digest(model(canonical(value)))


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, Number):
        return [path]
    if isinstance(value, dict):
        return [p for key, child in value.items() for p in numbers_in(child, (*path, key))]
    if isinstance(value, list):
        return [p for n, child in enumerate(value) for p in numbers_in(child, (*path, n))]
    return []


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    inner = replaced(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]


@LAWS
@given(st.text(st.characters(codec="utf-8"), max_size=30))
@example("1e-7")
@example("\u2028\x85\x00🙂\n\ttab")
@example("# no comment")
@example("trailing ")
def test_any_text_comes_back(text: str) -> None:
    original = f"k: {canonical(text)}\n"
    once = formatted(original)
    found = DiagnosticCollector()
    root = read_nodes(Source("t.yaml", once), found.report)
    assert not found.errors
    assert isinstance(root, MapNode)
    value = root.get("k")
    assert isinstance(value, ScalarNode)
    assert value.text == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dpolicy:   1\nname:    x\n", "dpolicy: 1\nname: x\n"),
        ("{dpolicy: 1, name: 'x'}", "dpolicy: 1\nname: x\n"),
        ("dpolicy: 1\r\nname: x\r\n", "dpolicy: 1\nname: x\n"),
        (
            "dpolicy: 1\nunits:\n    user:\n    team: ~\n",
            "dpolicy: 1\n\nunits:\n  user:\n  team:\n",
        ),
        ("dpolicy: 1 # one\n# two\nname: x\n", "dpolicy: 1  # one\n# two\nname: x\n"),
        ("a: {b: ['no', \"1\", 1.50, 'null']}\n", "a:\n  b: [no, '1', 1.50, 'null']\n"),
    ],
)
def test_examples(before: str, after: str) -> None:
    assert formatted(before) == after


def test_lines_are_kept_short_where_they_can_be() -> None:
    values = ", ".join(f"value-{n}" for n in range(40))
    once = formatted(f"schema: {{labels: {{l: {{values: [{values}]}}}}}}\n")
    assert max(map(len, once.splitlines())) <= WIDTH


def policy_texts() -> list[Path]:
    """Every policy file of the repository that can be read."""
    found = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "tests" / "cases").rglob("*.yaml")]
    found.append(ROOT / "src" / "dpolicy" / "cli" / "starter" / "policy.yaml")
    return sorted(path for path in found if readable(path))


def readable(path: Path) -> bool:
    found = DiagnosticCollector()
    return (
        read_nodes(Source(path.name, path.read_text("utf-8")), found.report) is not None
        and not found.sorted_diagnostics
    )


@pytest.mark.parametrize("path", policy_texts(), ids=lambda path: path.stem)
def test_the_files_of_the_repository_obey_the_laws(path: Path) -> None:
    text = path.read_text("utf-8")
    once = formatted(text)
    assert formatted(once) == once
    found, again = DiagnosticCollector(), DiagnosticCollector()
    assert parse_policies([Source("t", once)], found) == parse_policies([Source("t", text)], again)
    assert [d.code for d in found.sorted_diagnostics] == [d.code for d in again.sorted_diagnostics]


def test_the_starter_is_in_canonical_layout() -> None:
    text = (ROOT / "src" / "dpolicy" / "cli" / "starter" / "policy.yaml").read_text("utf-8")
    assert formatted(text) == text
