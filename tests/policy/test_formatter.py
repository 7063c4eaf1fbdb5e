"""Laws of the formatter: it keeps the content and all comments, and it is idempotent."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.policy.diagnose import ROOT, parse_valid
from tests.policy.policy_strategies import Layout, Number, canonical, policy_sets

from dpolicy.policy.digest import policy_digest
from dpolicy.policy.formatter import WIDTH, format_text
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


def format_valid(text: str) -> str:
    diagnostics = DiagnosticCollector()
    source = Source("t.yaml", text)
    root = read_nodes(source, diagnostics.report)
    assert root is not None, [str(d) for d in diagnostics.sorted_diagnostics]
    assert not diagnostics.errors
    return format_text(source, root)


@LAWS
@given(policy_sets, st.data())
def test_layout_does_not_change_the_model_or_digest(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = Layout(data.draw).text(value)
    assert parse_valid(text) == parse_valid(canonical(value))
    assert policy_digest(parse_valid(text)) == policy_digest(parse_valid(canonical(value)))


@LAWS
@given(policy_sets, st.data())
def test_formatting_keeps_the_content_and_every_comment(
    value: dict[str, Any], data: st.DataObject
) -> None:
    layout = Layout(data.draw)
    text = layout.text(value)
    once = format_valid(text)
    assert parse_valid(once) == parse_valid(text)
    assert format_valid(once) == once
    for comment in layout.comments:
        assert comment in once


@LAWS
@given(policy_sets, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_keys(
    value: dict[str, Any], random: Any
) -> None:
    def shuffle(node: Any) -> Any:
        if isinstance(node, list):
            return [shuffle(item) for item in node]
        if not isinstance(node, dict):
            return node
        keys = list(node)
        random.shuffle(keys)
        return {key: shuffle(node[key]) for key in keys}

    assert policy_digest(parse_valid(canonical(value))) == policy_digest(
        parse_valid(canonical(shuffle(value)))
    )


@LAWS
@given(policy_sets, st.data())
def test_the_digest_changes_with_any_number(value: dict[str, Any], data: st.DataObject) -> None:
    value = {**value, "each-release": [{**POLICY, "budget": {"rho": Number("1.5")}}]}
    paths = [path for path in numbers_in(value) if path != ("dpolicy",)]
    path = data.draw(st.sampled_from(paths))
    old = Fraction(get_path(value, path).text)
    new = data.draw(st.sampled_from(["3", "0.5", "7e-1", "0.0625", "11"]))
    assume(Fraction(new) != old)
    changed = replace_path(value, path, Number(new))
    diagnostics = DiagnosticCollector()
    other = parse_policies([Source("t.yaml", canonical(changed))], diagnostics)
    assume(not diagnostics.errors and other is not None)
    assert other is not None
    assert policy_digest(other) != policy_digest(parse_valid(canonical(value)))


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, Number):
        return [path]
    if isinstance(value, dict):
        return [p for key, child in value.items() for p in numbers_in(child, (*path, key))]
    if isinstance(value, list):
        return [p for n, child in enumerate(value) for p in numbers_in(child, (*path, n))]
    return []


def get_path(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def replace_path(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    inner = replace_path(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]


@LAWS
@given(st.text(st.characters(codec="utf-8"), max_size=30))
@example("1e-7")
@example("\u2028\x85\x00🙂\n\ttab")
@example("# no comment")
@example("trailing ")
def test_any_text_survives_formatting(text: str) -> None:
    original = f"k: {canonical(text)}\n"
    once = format_valid(original)
    diagnostics = DiagnosticCollector()
    root = read_nodes(Source("t.yaml", once), diagnostics.report)
    assert not diagnostics.errors
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
    assert format_valid(before) == after


def test_lines_are_kept_short_where_they_can_be() -> None:
    values = ", ".join(f"value-{n}" for n in range(40))
    once = format_valid(f"schema: {{labels: {{l: {{values: [{values}]}}}}}}\n")
    assert max(map(len, once.splitlines())) <= WIDTH


def policy_texts() -> list[Path]:
    """Return every readable policy and case file of the repository."""
    files = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "tests" / "cases").rglob("*.yaml")]
    files.append(ROOT / "src" / "dpolicy" / "cli" / "starter" / "policy.yaml")
    return sorted(path for path in files if is_readable(path))


def is_readable(path: Path) -> bool:
    diagnostics = DiagnosticCollector()
    return (
        read_nodes(Source(path.name, path.read_text("utf-8")), diagnostics.report) is not None
        and not diagnostics.sorted_diagnostics
    )


@pytest.mark.parametrize("path", policy_texts(), ids=lambda path: path.stem)
def test_the_files_of_the_repository_obey_the_laws(path: Path) -> None:
    text = path.read_text("utf-8")
    once = format_valid(text)
    assert format_valid(once) == once
    first, second = DiagnosticCollector(), DiagnosticCollector()
    once_parsed = parse_policies([Source("t", once)], first)
    assert once_parsed == parse_policies([Source("t", text)], second)
    assert [d.code for d in first.sorted_diagnostics] == [d.code for d in second.sorted_diagnostics]


def test_the_starter_is_in_canonical_layout() -> None:
    text = (ROOT / "src" / "dpolicy" / "cli" / "starter" / "policy.yaml").read_text("utf-8")
    assert format_valid(text) == text
