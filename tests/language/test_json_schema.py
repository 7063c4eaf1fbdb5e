"""The JSON Schema for editors: valid, shipped fresh, and of one mind with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from tests.language.generated import canonical, policy_sets
from tests.language.reading import EXAMPLES, ROOT, diagnostics, nodes

from dpolicy.policy.json_schema import policy_schema
from dpolicy.text.yaml_reader import ListNode, MapNode, ScalarNode, TextNode

VALIDATOR = Draft202012Validator(policy_schema())


def as_json(node: TextNode) -> Any:
    """A document as editors hand it to the schema: plain values, keys as text."""
    match node:
        case MapNode(entries=entries):
            return {key.text: as_json(value) for key, value in entries}
        case ListNode(items=items):
            return [as_json(item) for item in items]
        case ScalarNode(kind="number"):
            return int(node.number) if node.number.denominator == 1 else float(node.number)
        case ScalarNode(kind="bool", text=text):
            return text == "true"
        case ScalarNode(kind="null"):
            return None
        case ScalarNode(text=text):
            return text


def accepts(text: str) -> bool:
    root, found = nodes(text)
    assert root is not None
    assert found == []
    return bool(VALIDATOR.is_valid(as_json(root)))


def compiles(text: str) -> bool:
    return all(d.code >= "P100" for d in diagnostics(text))


def policy_texts() -> list[Path]:
    """Every policy file of the repository."""
    places = [
        ROOT / "examples",
        ROOT / "tests" / "cases",
        ROOT / "src" / "dpolicy" / "cli" / "starter",
    ]
    files = [path for place in places for path in place.rglob("*.yaml")]
    return sorted(path for path in files if path.read_text("utf-8").count("dpolicy: 1"))


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(policy_schema())


def test_the_shipped_schema_is_fresh() -> None:
    shipped = ROOT / "src" / "dpolicy" / "policy" / "policy.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == policy_schema()


@pytest.mark.parametrize("path", policy_texts(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_compiles_is_accepted(path: Path) -> None:
    text = path.read_text("utf-8")
    assert accepts(text) if compiles(text) else True


def test_there_is_something_to_accept() -> None:
    assert sum(compiles(path.read_text("utf-8")) for path in policy_texts()) >= 5


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(policy_sets)
def test_whatever_has_the_form_is_accepted(value: dict[str, Any]) -> None:
    assert accepts(canonical(value))


@pytest.mark.parametrize("code", ["P006", "P007", "P008", "P009", "P012"])
def test_mistakes_of_form_are_rejected(code: str) -> None:
    (path,) = EXAMPLES.glob(f"{code}-*.yaml")
    assert not accepts(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "dpolicy: 2",
        "dpolicy: '1'",
        "[]",
        "dpolicy: 1\nnam: x",
        "dpolicy: 1\nunits: [user]",
        "dpolicy: 1\nunits: {user: {perod: month}}",
        "dpolicy: 1\nschema: {atributes: {}}",
        "dpolicy: 1\nschema: {labels: {l: {values: a}}}",
        "dpolicy: 1\nschema: {partitions: {p: {from: 1}}}",
        "dpolicy: 1\naccounting: {delta: 1}",
        "dpolicy: 1\naccounting: {delta: small}",
        "dpolicy: 1\naccounting: {relation: both}",
        "dpolicy: 1\npolicies: {}",
        "dpolicy: 1\npolicies: [{name: p, kind: costum}]",
        "dpolicy: 1\npolicies: [{name: p, kind: custom, when: always, unit: user}]",
        "dpolicy: 1\npolicies: [{name: e, kind: extension, settings: []}]",
        "dpolicy: 1\npolicies: [{name: e, kind: extension, settings: [{name: a}]}]",
        "dpolicy: 1\npolicies: [{name: p, kind: custom, when: always, unit: u, budget: {eps: 1}}]",
        "dpolicy: 1\npolicies: [{name: p, kind: custom, when: always, unit: u, budget: {mu: -1}}]",
        "dpolicy: 1\npolicies: [{name: p, kind: custom, when: always, unit: u, budget: none}]",
    ],
)
def test_more_mistakes_of_form_are_rejected(text: str) -> None:
    assert not accepts(text)
    assert not compiles(text)
