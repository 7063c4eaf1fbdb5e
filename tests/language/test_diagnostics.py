"""Every diagnostic: a small text causes it and nothing else, at its place, with its remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.language.reading import EXAMPLES, ROOT, codes, diagnostics, diagnostics_of, errors

from dpolicy.cases.case_file import load_case
from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.policy.diagnostic_codes import CATALOGUE
from dpolicy.rules.compiler import compile_policy
from dpolicy.rules.hasse.diagram import MAX_NODES, hasse_svg
from dpolicy.text.diagnostics import MAX_ERRORS, Diagnostic, DiagnosticCollector, Severity
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.yaml_reader import Source, Span

#: Where each example is wrong. The text that stands under the carets is what a person must look at.
PLACES = {
    "P001-unclosed-bracket": ["4:80"],
    "P002-nested-too-deep": ["2:42"],
    "P003-anchor-and-alias": ["4:68", "5:82"],
    "P004-key-twice": ["5:3"],
    "P005-leading-zero": ["4:78"],
    "P006-misspelt-key": ["4:60"],
    "P007-number-as-text": ["4:78"],
    "P008-budget-missing": ["3:5"],
    "P009-negative-budget": ["4:78"],
    "P010-name-twice": ["5:12"],
    "P011-name-with-accent": ["4:5"],
    "P012-unknown-relation": ["2:37"],
    "P013-unknown-period": ["3:24"],
    "P014-units-in-a-circle": ["3:3"],
    "P015-range-upside-down": ["4:5"],
    "P016-default-not-a-value": ["4:47"],
    "P017-covers-with-a-period": ["4:45"],
    "P018-whose-month": ["6:3"],
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
    "P051-release-not-there_test": ["3:13"],
    "P101-unused-category": ["4:5"],
    "P102-never-matches": ["7:11"],
    "P103-without-effect": ["5:12"],
    "P104-partition-of-its-own-attribute": ["9:12"],
    "P105-lowers-a-budget": ["8:43"],
    "P106-order-not-verified": ["12:13"],
    "P107-partition-without-an-owner": ["6:5"],
}

#: Where there is nothing to advise beyond the message.
WITHOUT_HELP = {"P002", "P008", "P043", "P051", "P102"}

#: Codes that need something else than one text; they have tests of their own below.
WITHOUT_TEXT = {"P047"}


def reported(example: str) -> tuple[Diagnostic, ...]:
    file = EXAMPLES / f"{example}.yaml"
    if not example.endswith("_test"):
        return diagnostics_of([Source("policy.yaml", file.read_text("utf-8"))])
    with pytest.raises(PolicyRejected) as rejected:
        load_case(file)
    return tuple(d for d in rejected.value.diagnostics if isinstance(d, Diagnostic))


@pytest.mark.parametrize("example", PLACES)
def test_an_example_causes_its_code_and_no_other(example: str) -> None:
    code = example[:4]
    found = reported(example)
    assert {d.code for d in found} == {code}
    assert [f"{d.span.line}:{d.span.column}" for d in found] == PLACES[example]
    expected = Severity.WARNING if code >= "P100" else Severity.ERROR
    assert {d.severity for d in found} == {expected}


@pytest.mark.parametrize("example", PLACES)
def test_an_example_is_printed_with_its_line_a_caret_and_help(example: str) -> None:
    for diagnostic in reported(example):
        head, _, source, caret, *rest = str(diagnostic).split("\n")
        assert re.fullmatch(r"\S+:\d+:\d+: (error|warning) P\d\d\d: .+", head)
        text = (EXAMPLES / f"{example}.yaml").read_text("utf-8").splitlines()
        assert source.split(" | ", 1)[1] in text[diagnostic.span.line - 1]
        assert set(caret.replace(" ", "")) == {"|", "^"}
        assert bool(rest) == (diagnostic.code not in WITHOUT_HELP)


@pytest.mark.parametrize("example", PLACES)
def test_messages_are_written_for_people(example: str) -> None:
    for diagnostic in reported(example):
        for text in (diagnostic.message, diagnostic.help or "x"):
            assert not text[0].isupper(), text
            assert not text.endswith("."), text
            assert not re.search(r"\b[A-Z][a-z]+[A-Z]\w+\b|Traceback|None\b|object at", text), text


def test_every_example_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("P*.yaml")} == set(PLACES)


def test_every_code_has_an_example() -> None:
    assert {example[:4] for example in PLACES} | WITHOUT_TEXT == set(CATALOGUE)


def test_the_catalogue_is_what_the_code_uses() -> None:
    used = set()
    for path in sorted((ROOT / "src" / "dpolicy").rglob("*.py")):
        if path.name != "diagnostic_codes.py":
            used |= set(re.findall(r"\"(P\d\d\d)\"", path.read_text("utf-8")))
    assert used - {"P100"} == set(CATALOGUE)


def test_titles_and_reasons_are_sentences_of_the_same_kind() -> None:
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


def test_a_counterexample_says_which_mechanism() -> None:
    (found,) = reported("P026-false-order")
    assert found.help is not None
    assert "stage: draft" in found.help
    assert "`not-tuning`" in found.help


def test_a_function_that_is_not_monotone_says_where() -> None:
    (found,) = reported("P041-not-monotone")
    assert "1 becomes 6 but 2 becomes 3" in found.message


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
def test_the_remedy_is_named(example: str, help_: str) -> None:
    assert [d.help for d in reported(example)] == [help_]


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


def test_many_mistakes_are_told_at_once_by_place_and_none_for_another() -> None:
    found = [(d.code, f"{d.span.line}:{d.span.column}") for d in diagnostics(MANY)]
    assert found == [
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
        # A mistake in a base policy leaves an extension with nothing to multiply.
        (f"{HEAD}policies: [{CUSTOM.replace('user', 'usr')}, EXT]\n", ["P020"]),
        (f"{HEAD}policies: [EXT]\n", []),
        # A name that was misspelt once is not unknown everywhere else.
        (f"{HEAD}schema: {{attributes: {{zip: 5}}}}\npolicies: [ATT]\n", ["P007"]),
        (f"{HEAD}schema: {{attributes: {{zip: {{risk: vast}}}}}}\npolicies: [ATT]\n", ["P024"]),
        (f"{HEAD}schema: {{categories: {{c: []}}}}\npolicies: [CAT]\n", ["P101", "P007"]),
        (f"{HEAD}schema: {{labels: {{l: {{values: 3}}}}}}\npolicies: [LAB]\n", ["P007"]),
        (
            f"{HEAD}units: {{team: {{of: [x]}}}}\npolicies: [{CUSTOM.replace('user', 'team')}]\n",
            ["P007"],
        ),
        # A section that cannot be read does not spoil the others.
        (f"dpolicy: 1\naccounting: [1]\npolicies: [{CUSTOM}]\n", ["P007"]),
        (f"dpolicy: 1\naccounting: {{dleta: 1e-7}}\npolicies: [{CUSTOM}]\n", ["P006"]),
        (f"dpolicy: 1\naccounting: {{delta: 2}}\npolicies: [{CUSTOM}]\n", ["P009"]),
        (f"{HEAD}polices: [{CUSTOM}]\n", ["P006"]),
        (f"{HEAD}policies: [{CUSTOM}, 5, [x]]\n", ["P007", "P007"]),
    ],
)
def test_one_mistake_is_one_diagnostic(text: str, expected: list[str]) -> None:
    extension = "{name: e, kind: extension, settings: [{name: s, when: always, budget: same}]}"
    budgets = "unit: user, budgets: {low: {epsilon: 1}, medium: {epsilon: 1}, high: {epsilon: 1}}"
    text = text.replace("EXT", extension)
    text = text.replace("ATT", f"{{name: a, kind: attribute, {budgets}}}")
    text = text.replace("CAT", f"{{name: a, kind: category, {budgets}}}")
    label = "{name: l, kind: custom, when: 'labels.l == \"x\"', unit: user, budget: {epsilon: 1}}"
    assert codes(text.replace("LAB", label)) == expected


def test_past_a_hundred_errors_the_rest_is_not_told() -> None:
    found = diagnostics("dpolicy: 1\n" + "".join(f"k{n}: 1\n" for n in range(500)))
    assert len(found) == MAX_ERRORS + 2
    assert found[-1].code == "P002"
    assert "more than 100 errors" in found[-1].message


def test_warnings_never_reject() -> None:
    unused = "".join(f"    c{n}: {{risk: low}}\n" for n in range(2 * MAX_ERRORS))
    assert errors(f"dpolicy: 1\nschema:\n  categories:\n{unused}") == []


def test_a_finding_twice_is_one() -> None:
    found = DiagnosticCollector()
    span = Span(Source("a", "x"), 1, 1, 1, 2)
    found.report("P001", "m", span)
    found.report("P001", "m", span)
    assert len(found.sorted_diagnostics) == 1


def test_nothing_that_is_printed_steers_a_terminal() -> None:
    span = Span(Source("a", 'key: "\x1b[31mred\x1b[0m"\tx'), 1, 1, 1, 4)
    shown = str(Diagnostic("P006", "no key `\x1b[2J\r`", span, "\x07"))
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_a_long_line_is_shown_in_part_with_the_caret_in_it() -> None:
    span = Span(Source("a", "x" * 5000 + "WRONG" + "y" * 5000), 1, 5001, 1, 5006)
    _, _, source, caret = str(Diagnostic("P001", "m", span)).split("\n")
    assert len(source) < 130
    start = caret.index("^")
    assert source[start : start + 5] == "WRONG"


@pytest.mark.parametrize("count", [3, 5_000])
def test_a_misspelt_name_is_found_among_few_and_many(count: int) -> None:
    names = [f"attribute-{n:05}" for n in range(count)] + ["diagnosis", "page-views"]
    assert suggest("diagnosys", names) == "did you mean `diagnosis`?"
    assert suggest("page_views", names) == "did you mean `page-views`?"
    assert suggest("attribut-00001", names) == "did you mean `attribute-00001`?"


def test_what_there_is_to_choose_from_is_listed_where_it_is_short() -> None:
    assert suggest("xyz", ["b", "a"]) == "use one of `a`, `b`"
    assert suggest("xyz", [f"a{n}" for n in range(100)]) is None
    assert suggest("x" * 10**6, ["x"]) == "use `x`"


def test_diagnostics_for_programs() -> None:
    (found,) = diagnostics((EXAMPLES / "P006-misspelt-key.yaml").read_text("utf-8"))
    assert found.as_json() == {
        "code": "P006",
        "severity": "error",
        "message": "a custom policy has no key `buget`",
        "file": "policy.yaml",
        "line": 4,
        "column": 60,
        "help": "did you mean `budget`?",
    }


def test_the_reference_page_shows_every_code() -> None:
    page = (ROOT / "docs" / "diagnostics.md").read_text("utf-8")
    for code in CATALOGUE:
        assert f"## {code}\n" in page
    assert str(Path.home()) not in page
    assert str(ROOT) not in page
