"""JSON Schema for editors: valid, up to date, and consistent with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from tests.policy.diagnose import EXAMPLES, ROOT, diagnose, read_text
from tests.policy.policy_strategies import canonical, policy_sets

from dpolicy.policy.json_schema import policy_schema
from dpolicy.text.yaml_reader import ListNode, MapNode, ScalarNode, TextNode

VALIDATOR = Draft202012Validator(policy_schema())


def as_json(node: TextNode) -> Any:
    """Return a document as JSON data, as an editor passes it to the schema."""
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
    root, reported = read_text(text)
    assert root is not None
    assert reported == []
    return bool(VALIDATOR.is_valid(as_json(root)))


def compiles(text: str) -> bool:
    return all(d.code >= "P100" for d in diagnose(text))


def policy_texts() -> list[Path]:
    """Return every policy file of the repository."""
    folders = [
        ROOT / "examples",
        ROOT / "tests" / "cases",
        ROOT / "src" / "dpolicy" / "cli" / "starter",
    ]
    files = [path for folder in folders for path in folder.rglob("*.yaml")]
    return sorted(path for path in files if path.read_text("utf-8").count("dpolicy: 1"))


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(policy_schema())


def test_the_shipped_schema_is_up_to_date() -> None:
    shipped = ROOT / "src" / "dpolicy" / "policy" / "policy.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == policy_schema()


@pytest.mark.parametrize("path", policy_texts(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_policy_that_compiles_is_accepted(path: Path) -> None:
    text = path.read_text("utf-8")
    assert accepts(text) if compiles(text) else True


def test_several_policies_compile() -> None:
    assert sum(compiles(path.read_text("utf-8")) for path in policy_texts()) >= 5


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(policy_sets)
def test_every_generated_policy_set_is_accepted(value: dict[str, Any]) -> None:
    assert accepts(canonical(value))


@pytest.mark.parametrize("code", ["P006", "P007", "P008", "P009", "P012"])
def test_examples_of_syntax_errors_are_rejected(code: str) -> None:
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
def test_syntax_errors_are_rejected(text: str) -> None:
    assert not accepts(text)
    assert not compiles(text)
