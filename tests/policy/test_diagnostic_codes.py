"""Diagnostic codes: for each code a small text that causes it and no other, with its position."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.policy.diagnose import (
    EXAMPLES,
    ROOT,
    diagnose,
    diagnose_sources,
    diagnostic_codes,
    error_codes,
)

from dpolicy.cases.case_file import load_case
from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.policy.diagnostic_codes import CATALOGUE
from dpolicy.rules.compiler import compile_policy
from dpolicy.rules.hasse.diagram import MAX_NODES, hasse_svg
from dpolicy.text.diagnostics import MAX_ERRORS, Diagnostic, Severity
from dpolicy.text.yaml_reader import Source

#: Positions (line:column) of the diagnostics of each example.
POSITIONS = {
    "P001-unclosed-bracket": ["4:80"],
    "P002-nested-too-deep": ["2:42"],
    "P003-anchor-and-alias": ["4:68", "5:82"],
    "P004-duplicate-key": ["5:3"],
    "P005-leading-zero": ["4:78"],
    "P006-misspelt-key": ["4:60"],
    "P007-number-as-text": ["4:78"],
    "P008-budget-missing": ["3:5"],
    "P009-negative-budget": ["4:78"],
    "P010-duplicate-name": ["5:12"],
    "P011-name-with-accent": ["4:5"],
    "P012-unknown-relation": ["2:37"],
    "P013-unknown-period": ["3:24"],
    "P014-cycle-of-units": ["3:3"],
    "P015-empty-range": ["4:5"],
    "P016-default-not-a-value": ["4:47"],
    "P017-covers-with-a-period": ["4:40"],
    "P018-unit-without-an-owner": ["5:3"],
    "P020-unknown-unit": ["7:54"],
    "P021-no-catch-all": ["8:11"],
    "P022-unknown-category": ["7:32"],
    "P023-misspelt-attribute": ["8:43"],
    "P024-unknown-risk-level": ["4:23"],
    "P025-unknown-label": ["7:41"],
    "P026-false-order": ["11:84"],
    "P027-attribute-without-risk": ["6:5"],
    "P028-category-without-risk": ["5:5"],
    "P029-level-without-budget": ["8:12"],
    "P030-single-equals-sign": ["4:46"],
    "P031-list-compared-with-text": ["7:52"],
    "P032-regular-expression": ["4:46"],
    "P033-value-outside-the-label": ["7:57"],
    "P040-epsilon-without-delta": ["3:68"],
    "P041-not-monotone": ["15:43"],
    "P042-outside-the-points": ["8:43"],
    "P043-below-zero": ["8:43"],
    "P044-static-over-many-releases": ["6:14"],
    "P045-too-many-small-orders": ["4:11"],
    "P046-too-many-rules": ["9:11"],
    "P048-noise-missing": ["6:7"],
    "P049-classic-budgets": ["2:1"],
    "P051-missing-release_test": ["3:13"],
    "P101-unused-category": ["4:5"],
    "P102-never-matches": ["7:11"],
    "P103-without-effect": ["5:12"],
    "P104-partition-of-its-own-attribute": ["9:12"],
    "P105-lowers-a-budget": ["8:43"],
    "P106-order-not-verified": ["12:13"],
    "P107-partition-without-an-owner": ["6:5"],
}

#: Codes whose examples have no help.
WITHOUT_HELP = {"P002", "P008", "P043", "P051", "P102"}

#: Codes without an example; a separate test below covers each.
WITHOUT_TEXT = {"P047"}


def diagnose_example(example: str) -> tuple[Diagnostic, ...]:
    file = EXAMPLES / f"{example}.yaml"
    if not example.endswith("_test"):
        return diagnose_sources([Source("policy.yaml", file.read_text("utf-8"))])
    with pytest.raises(PolicyRejected) as rejected:
        load_case(file)
    return tuple(d for d in rejected.value.diagnostics if isinstance(d, Diagnostic))


@pytest.mark.parametrize("example", POSITIONS)
def test_an_example_causes_its_code_and_no_other(example: str) -> None:
    code = example[:4]
    reported = diagnose_example(example)
    assert {d.code for d in reported} == {code}
    assert [f"{d.span.line}:{d.span.column}" for d in reported] == POSITIONS[example]
    expected = Severity.WARNING if code >= "P100" else Severity.ERROR
    assert {d.severity for d in reported} == {expected}


@pytest.mark.parametrize("example", POSITIONS)
def test_an_example_is_printed_with_its_line_a_caret_and_help(example: str) -> None:
    for diagnostic in diagnose_example(example):
        head, _, source, caret, *help_lines = str(diagnostic).split("\n")
        assert re.fullmatch(r"\S+:\d+:\d+: (error|warning) P\d\d\d: .+", head)
        text = (EXAMPLES / f"{example}.yaml").read_text("utf-8").splitlines()
        assert source.split(" | ", 1)[1] in text[diagnostic.span.line - 1]
        assert set(caret.replace(" ", "")) == {"|", "^"}
        assert bool(help_lines) == (diagnostic.code not in WITHOUT_HELP)


@pytest.mark.parametrize("example", POSITIONS)
def test_messages_follow_the_style_rules(example: str) -> None:
    for diagnostic in diagnose_example(example):
        for text in (diagnostic.message, diagnostic.help or "x"):
            assert not text[0].isupper(), text
            assert not text.endswith("."), text
            assert not re.search(r"\b[A-Z][a-z]+[A-Z]\w+\b|Traceback|None\b|object at", text), text


def test_every_example_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("P*.yaml")} == set(POSITIONS)


def test_every_code_has_an_example() -> None:
    assert {example[:4] for example in POSITIONS} | WITHOUT_TEXT == set(CATALOGUE)


def test_the_catalogue_has_exactly_the_codes_of_the_source() -> None:
    used = set()
    for path in sorted((ROOT / "src" / "dpolicy").rglob("*.py")):
        if path.name != "diagnostic_codes.py":
            used |= set(re.findall(r"\"(P\d\d\d)\"", path.read_text("utf-8")))
    assert used - {"P100"} == set(CATALOGUE)


def test_titles_and_explanations_have_the_same_form() -> None:
    for code, (title, why) in CATALOGUE.items():
        assert not title.endswith("."), code
        assert why.endswith("."), code


def test_too_many_rules_to_draw() -> None:
    attributes = "".join(f"    a{n}: {{risk: low}}\n" for n in range(MAX_NODES + 1))
    text = (
        "dpolicy: 1\naccounting: {delta: 1e-7}\nschema:\n  attributes:\n"
        + attributes
        + "policies:\n"
        "  - {name: p, kind: attribute, unit: user, budgets: {low: {epsilon: 1}}}\n"
    )
    section = compile_policy([Source("policy.yaml", text)]).cumulative
    with pytest.raises(InvalidValue) as refused:
        hasse_svg(section, range(len(section.rules)))
    assert refused.value.code == "P047"


def test_a_false_order_shows_a_mechanism() -> None:
    (reported,) = diagnose_example("P026-false-order")
    assert reported.help is not None
    assert "stage: draft" in reported.help
    assert "`not-tuning`" in reported.help


def test_a_function_that_is_not_monotone_shows_two_budgets() -> None:
    (reported,) = diagnose_example("P041-not-monotone")
    assert "1 becomes 6 but 2 becomes 3" in reported.message


@pytest.mark.parametrize(
    ("example", "help_"),
    [
        ("P006-misspelt-key", "did you mean `budget`?"),
        ("P020-unknown-unit", "did you mean `user-month`?"),
        ("P022-unknown-category", "did you mean `health`?"),
        ("P023-misspelt-attribute", "did you mean `diagnosis`?"),
        ("P025-unknown-label", "did you mean `stage`?"),
        ("P033-value-outside-the-label", "did you mean `tuning`?"),
        ("P030-single-equals-sign", "write `==`"),
        ("P007-number-as-text", "remove the quotes"),
    ],
)
def test_examples_have_exact_help(example: str, help_: str) -> None:
    assert [d.help for d in diagnose_example(example)] == [help_]


MANY = """\
dpolicy: 1
accounting: {delta: 1e-7}
schema:
  atributes:
    zip: {risk: very-high}
    age: {risk: [low], weak: [health]}
  categories: {health: {risk: 7up}}
  labels:
    stage: {values: final, default: final}
    purpose: {values: [a, b], mnay: true}
policies:
  - {name: per-attribute, kind: attribute, unit: user, budgets: {low: {epsilon: 1}}}
  - {name: first, kind: custom, when: 'by = 1', unit: usr, budget: {epsilon: -1}}
  - name: second
    kind: custom
    when: 'labels.stage == "x" && "a" in labels.purpose'
    unti: user
    budget: {rho: 010}
    below: [first]
  - name: context
    kind: extension
    settings:
      - {name: research, when: 'by == 3', budget: same}
      - {name: any, when: always, budget: {tims: 3}}
"""


def test_all_errors_are_reported_in_order_without_consequential_errors() -> None:
    reported = [(d.code, f"{d.span.line}:{d.span.column}") for d in diagnose(MANY)]
    assert reported == [
        ("P006", "4:3"),
        ("P024", "5:17"),
        ("P007", "6:17"),
        ("P024", "7:31"),
        ("P007", "9:21"),
        ("P006", "10:31"),
        ("P030", "13:43"),
        ("P020", "13:55"),
        ("P009", "13:78"),
        ("P006", "17:5"),
        ("P005", "18:19"),
        ("P031", "23:36"),
        ("P008", "24:43"),
    ]


HEAD = "dpolicy: 1\naccounting: {delta: 1e-7}\n"
CUSTOM = "{name: p, kind: custom, when: always, unit: user, budget: {epsilon: 1}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # An error in a base policy leaves an extension without base rules.
        (f"{HEAD}policies: [{CUSTOM.replace('user', 'usr')}, EXT]\n", ["P020"]),
        (f"{HEAD}policies: [EXT]\n", []),
        # A definition with an error does not make its name unknown elsewhere.
        (f"{HEAD}schema: {{attributes: {{zip: 5}}}}\npolicies: [ATT]\n", ["P007"]),
        (f"{HEAD}schema: {{attributes: {{zip: {{risk: vast}}}}}}\npolicies: [ATT]\n", ["P024"]),
        (f"{HEAD}schema: {{categories: {{c: []}}}}\npolicies: [CAT]\n", ["P101", "P007"]),
        (f"{HEAD}schema: {{labels: {{l: {{values: 3}}}}}}\npolicies: [LAB]\n", ["P007"]),
        (
            f"{HEAD}units: {{team: {{of: [x]}}}}\npolicies: [{CUSTOM.replace('user', 'team')}]\n",
            ["P007"],
        ),
        # An unreadable section does not affect the others.
        (f"dpolicy: 1\naccounting: [1]\npolicies: [{CUSTOM}]\n", ["P007"]),
        (f"dpolicy: 1\naccounting: {{dleta: 1e-7}}\npolicies: [{CUSTOM}]\n", ["P006"]),
        (f"dpolicy: 1\naccounting: {{delta: 2}}\npolicies: [{CUSTOM}]\n", ["P009"]),
        (f"{HEAD}polices: [{CUSTOM}]\n", ["P006"]),
        (f"{HEAD}policies: [{CUSTOM}, 5, [x]]\n", ["P007", "P007"]),
    ],
)
def test_one_error_is_one_diagnostic(text: str, expected: list[str]) -> None:
    extension = "{name: e, kind: extension, settings: [{name: s, when: always, budget: same}]}"
    budgets = "unit: user, budgets: {low: {epsilon: 1}, medium: {epsilon: 1}, high: {epsilon: 1}}"
    text = text.replace("EXT", extension)
    text = text.replace("ATT", f"{{name: a, kind: attribute, {budgets}}}")
    text = text.replace("CAT", f"{{name: a, kind: category, {budgets}}}")
    label = "{name: l, kind: custom, when: 'labels.l == \"x\"', unit: user, budget: {epsilon: 1}}"
    assert diagnostic_codes(text.replace("LAB", label)) == expected


def test_after_a_hundred_errors_reporting_stops() -> None:
    reported = diagnose("dpolicy: 1\n" + "".join(f"k{n}: 1\n" for n in range(500)))
    assert len(reported) == MAX_ERRORS + 2
    assert reported[-1].code == "P002"
    assert "more than 100 errors" in reported[-1].message


def test_warnings_never_reject() -> None:
    unused = "".join(f"    c{n}: {{risk: low}}\n" for n in range(2 * MAX_ERRORS))
    assert error_codes(f"dpolicy: 1\nschema:\n  categories:\n{unused}") == []


def test_diagnostics_as_json() -> None:
    (reported,) = diagnose((EXAMPLES / "P006-misspelt-key.yaml").read_text("utf-8"))
    assert reported.as_json() == {
        "code": "P006",
        "severity": "error",
        "message": "a custom policy has no key `buget`",
        "file": "policy.yaml",
        "line": 4,
        "column": 60,
        "help": "did you mean `budget`?",
    }


def test_the_reference_page_has_every_code() -> None:
    page = (ROOT / "docs" / "diagnostics.md").read_text("utf-8")
    for code in CATALOGUE:
        assert f"## {code}\n" in page
    assert str(Path.home()) not in page
    assert str(ROOT) not in page
