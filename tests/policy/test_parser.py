"""Parser: the files of a directory form one policy set, and each name is defined once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.policy.diagnose import diagnostic_codes

from dpolicy.errors import PolicyRejected
from dpolicy.policy.json_schema import policy_schema
from dpolicy.policy.parser import policy_files
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.diagnostics import Diagnostic

BASE = """\
dpolicy: 1
name: acme
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  attributes: {zip: {risk: low}}
  labels: {stage: {values: [final, tuning], default: final}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
"""
GLOBAL = "{name: global, kind: custom, when: always, unit: user, budget: {rho: 1}}"
MORE = """\
dpolicy: 1
schema:
  attributes: {age: {risk: high}}
policies:
  - {name: tuning, kind: custom, when: 'labels.stage == "tuning"', unit: user, budget: {rho: 1}}
"""


def write_files(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("__")
        path = directory / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return directory


def load_rejected(path: Path) -> list[Diagnostic]:
    with pytest.raises(PolicyRejected) as error:
        load_policy(path)
    return [d for d in error.value.diagnostics if isinstance(d, Diagnostic)]


def rule_names(policy: CompiledPolicy) -> list[str]:
    return [rule.name for rule, _ in policy.all_rules]


def test_the_files_of_a_directory_are_one_policy_set(tmp_path: Path) -> None:
    policy = load_policy(write_files(tmp_path, a__yaml=BASE, b__yml=MORE))
    assert rule_names(policy) == ["global", "tuning"]
    assert sorted(policy.policy_set.attributes) == ["age", "zip"]
    assert policy.policy_set.name == "acme"


def test_json_files_are_read_beside_yaml(tmp_path: Path) -> None:
    more = '{"dpolicy": 1, "policies": [{"name": "x", "kind": "custom", "when": "always", '
    more += '"unit": "user", "budget": "unlimited"}]}'
    assert rule_names(load_policy(write_files(tmp_path, a__yaml=BASE, b__json=more))) == [
        "global",
        "x",
    ]


def test_releases_cases_and_other_files_are_ignored(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        a__yaml=BASE,
        release__yaml="release: r-1\nmechanisms: []\n",
        case__yaml="policy: a.yaml\nsteps: []\n",
        policy_test__yaml="policy: a.yaml\nsteps: [{check: }]\n",
        notes__txt="dpolicy: 2\n",
        README__md="# hello\n",
    )
    (tmp_path / "deeper.yaml").mkdir()
    assert rule_names(load_policy(tmp_path)) == ["global"]


def test_an_unreadable_file_rejects_the_policy_set(tmp_path: Path) -> None:
    write_files(tmp_path, a__yaml=BASE, broken_test__yaml="[not: a policy\n")
    with pytest.raises(PolicyRejected, match=r"broken_test\.yaml:1:15: error P001"):
        load_policy(tmp_path)


def test_a_release_or_case_alone_is_rejected() -> None:
    assert diagnostic_codes("release: r-1\nmechanisms: []\n") == ["P008"]
    assert diagnostic_codes("policy: a.yaml\nsteps: []\n") == ["P008"]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("schema: {attributes: {zip: {risk: high}}}\n", "zip"),
        ("schema: {labels: {stage: {text: true}}}\n", "stage"),
        ("units: {user: {}}\n", "user"),
        ("accounting: {delta: 1e-9}\n", "accounting"),
        ("name: other\n", "name"),
        (f"policies: [{GLOBAL}]\n", "global"),
        (f"each-release: [{GLOBAL}]\n", "global"),
    ],
)
def test_a_name_in_two_files_is_rejected(more: str, name: str, tmp_path: Path) -> None:
    diagnostics = load_rejected(write_files(tmp_path, a__yaml=BASE, b__yaml=f"dpolicy: 1\n{more}"))
    assert [d.code for d in diagnostics] == ["P010"]
    assert f"`{name}`" in diagnostics[0].message
    assert diagnostics[0].span.source.name.endswith("b.yaml")


def test_levels_in_two_files_are_rejected(tmp_path: Path) -> None:
    levels = "dpolicy: 1\nschema: {risk-levels: [a, b]}\n"
    diagnostics = load_rejected(write_files(tmp_path, a__yaml=levels, b__yaml=levels))
    assert [d.code for d in diagnostics] == ["P010"]


def test_every_file_needs_the_version(tmp_path: Path) -> None:
    diagnostics = load_rejected(write_files(tmp_path, a__yaml=BASE, b__yaml="policies: []\n"))
    assert [(d.code, Path(d.span.source.name).name) for d in diagnostics] == [("P008", "b.yaml")]


def test_errors_of_all_files_are_reported_in_file_order(tmp_path: Path) -> None:
    diagnostics = load_rejected(
        write_files(tmp_path, b__yaml="dpolicy: 1\nnam: x\n", a__yaml="dpolicy: 2\n", c__yaml="{\n")
    )
    positions = [(Path(d.span.source.name).name, d.code) for d in diagnostics]
    assert positions == [("a.yaml", "P009"), ("b.yaml", "P006"), ("c.yaml", "P001")]


def test_a_syntax_error_in_one_file_rejects_the_policy_set(tmp_path: Path) -> None:
    diagnostics = load_rejected(write_files(tmp_path, a__yaml=BASE, b__yaml="dpolicy: 1\n\tbad\n"))
    assert [d.code for d in diagnostics] == ["P001"]


def test_the_schema_of_editors_beside_a_policy_is_not_a_policy(tmp_path: Path) -> None:
    write_files(tmp_path, a__yaml=BASE)
    (tmp_path / "policy.schema.json").write_text(json.dumps(policy_schema()), "utf-8")
    assert policy_files(tmp_path) == [tmp_path / "a.yaml"]
    assert policy_files(tmp_path / "policy.schema.json") == [tmp_path / "policy.schema.json"]


def test_a_directory_without_policies_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        policy_files(tmp_path)
    only_releases = write_files(tmp_path, r1__yaml="release: a\n", r2__yaml="release: b\n")
    assert [d.code for d in load_rejected(only_releases)] == ["P008"]


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    one = load_policy(write_files(tmp_path / "1", a__yaml=BASE))
    two = load_policy(write_files(tmp_path / "2", z__yaml=BASE))
    assert one.digest == two.digest
