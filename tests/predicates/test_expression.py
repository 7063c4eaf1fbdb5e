"""Parsing and evaluation of predicates: results, problems with positions, and limits."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest
from tests.predicates.predicate_strategies import evaluate, parse_valid

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.evaluation import MAX_STEPS
from dpolicy.predicates.expression import (
    Always,
    Expression,
    ExpressionProblem,
    UsesAny,
    matches,
    parse_predicate,
    reads_attribute,
)
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

SCHEMA = ReleaseSchema(
    frozenset({"zip", "diagnosis", "page-views"}),
    {
        "deployment": Label("deployment", ("standard", "black-box"), default="standard"),
        "stage": Label("stage", ("final", "tuning")),
        "purpose": Label("purpose", ("research", "product"), many=True),
        "data-set": Label("data-set", None, required=True),
    },
)
INPUT = PredicateInput(
    ("diagnosis", "zip"),
    {"deployment": "standard", "purpose": ("research",), "data-set": "d"},
    "laplace",
    "web",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ('"zip" in attributes', True),
        ('"page-views" in attributes', False),
        ('labels.deployment == "standard"', True),
        ('labels["deployment"] != "standard"', False),
        ('labels [ "data-set" ] == "d"', True),
        ('labels.`data-set`.startsWith("d")', True),
        ("has(labels.stage)", False),
        ("has( labels . deployment )", True),
        ("has(labels.`data-set`)", True),
        ('has(labels.stage) && labels.stage == "final"', False),
        ('labels.stage == "final" && has(labels.stage)', False),
        ('labels.stage == "final" || true', True),
        ('has(labels.stage) ? labels.stage == "final" : true', True),
        ('"research" in labels.purpose', True),
        ("has(labels.purpose)", True),
        ('labels.purpose.exists(p, p == "product")', False),
        ('attributes.all(a, a in ["zip", "diagnosis"])', True),
        ('attributes.exists_one(a, a == "zip")', True),
        ("attributes.exists_one(a, true)", False),
        ('["zip", "page-views"].exists(a, a in attributes)', True),
        ("size(attributes) == 2 && attributes.size() < 3", True),
        ("size(attributes) * 2 - 1 == 3 && -7 / 2 == -3 && -7 % 2 == -1", True),
        ('mechanism == "laplace" && by.contains("e") && by.endsWith("b")', True),
        ('by < "x" && 1.5 < 2.0 && false < true', True),
        ('"has(labels.stage)" != by // has(labels.stage)', True),
        ("attributes.all(a, attributes.all(a, a.size() > 2))", True),
        ('"é😀".size() == 2 && labels["data-set"] == "d"', True),
    ],
)
def test_results(text: str, expected: bool) -> None:
    assert matches(parse_valid(text, SCHEMA), INPUT) is expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('labels.stage == "final"', "the label `stage` is missing"),
        ('labels.stage == "final" || false', "missing"),
        ('labels.stage == "final" && true', "missing"),
        ('attributes.all(a, labels.stage == "final")', "missing"),
        ('attributes.exists_one(a, a == "zip" || labels.stage == "final")', "missing"),
        ('labels.stage == "final" ? true : true', "missing"),
        ("1 / (size(attributes) - 2) == 1", "division by zero"),
        ("1 % (size(attributes) - 2) == 1", "division by zero"),
        ("9223372036854775807 + size(attributes) > 0", "64 bits"),
        ("-9223372036854775808 / -1 > 0", "64 bits"),
    ],
)
def test_an_evaluation_error_raises(text: str, reason: str) -> None:
    with pytest.raises(PredicateFailed, match=reason):
        matches(parse_valid(text, SCHEMA), INPUT)


@pytest.mark.parametrize(
    ("text", "kind", "message", "underlined", "help_"),
    [
        ("labels.stge == 'x'", "unknown-label", "unknown label `stge`", "labels.stge", "`stage`"),
        ('labels["foo"] == "x"', "unknown-label", "label `foo`", 'labels["foo"]', "use one of `"),
        ("has(labels.stge)", "unknown-label", "unknown label `stge`", "labels.stge", "`stage`"),
        ('"zipp" in attributes', "unknown-attribute", "`zipp`", '"zipp"', "mean `zip`"),
        ('attributes.all(a, a != "zp")', "unknown-attribute", "`zp`", '"zp"', "mean `zip`"),
        ('["zp"].all(a, a in attributes)', "unknown-attribute", "`zp`", '"zp"', "mean `zip`"),
        ('"fnal" == labels.stage', "unknown-value", "value of `stage` `fnal`", '"fnal"', "`final`"),
        ('labels.stage in ["final", "x"]', "unknown-value", "`x`", '"x"', "`final`, `tuning`"),
        ('"prod" in labels.purpose', "unknown-value", "`prod`", '"prod"', "`product`"),
        ('mechanism == "lapalce"', "unknown-value", "`lapalce`", '"lapalce"', "`laplace`"),
        ("zip == 'a'", "type", "unknown name `zip`", "zip", 'as text: `"zip"`'),
        ("label.stage == 'a'", "type", "name `label.stage`", "label.stage", "`labels.stage`"),
        ("stage == 'a'", "type", "unknown name `stage`", "stage", "`labels.stage`"),
        ("labels == labels", "type", "unknown name `labels`", "labels", "`labels.x`"),
        ('"zip" in attribute', "type", "unknown name `attribute`", "attribute", "`attributes`"),
        ("sise(attributes) > 1", "type", "unknown function `sise`", "sise", "`size`"),
        ("labels.stage == 1", "type", "`==` does not apply to text and a whole number", "==", None),
        ('labels["stage"] == 1', "type", "`==` does not apply to text", "==", None),
        ("labels['data-set'] == 1", "type", "`==` does not apply to text", "==", None),
        ('labels.purpose == "research"', "type", "a list of text and text", "==", "`in`"),
        ("size(attributes) > 1.5", "type", "a decimal number", ">", "whole numbers only"),
        ("labels.stage", "type", "true or false, not text", "labels.stage", None),
        ("labels.stage.x == 'a'", "type", "select", ".", None),
        ('"zip" in ["zip", 1]', "type", "values of one type", "[", None),
        ("by = 'a'", "syntax", "unexpected `=`", "=", "`==`"),
        ("true and true", "syntax", "unexpected `and`", "and", "`&&`"),
        ("(true", "syntax", "missing `)`", "e", None),
        ("true &&", "syntax", "is incomplete", "&", None),
        ("", "syntax", "is incomplete", "", None),
        ("a\0b", "syntax", "zero byte", "\0", None),
        ("by == '\ud800'", "syntax", "unpaired surrogate", "\ud800", None),
        ("has(labels['stage'])", "syntax", "must be a field selection", "[", "`has(labels.x)`"),
        ("has(attributes.x)", "refused", "only one label", "has", "`has(labels.x)`"),
        ("has.labels.stage", "refused", "`has` is not a name", "has", "`has(labels.x)`"),
        ("attributes.all(labels, true)", "refused", "hides", "all", "rename"),
        ("attributes.map(a, a).size() > 1", "refused", "`map` is not allowed", "map", "`all`"),
        ("attributes.filter(a, true).size() > 1", "refused", "`filter`", "filter", "`all`"),
        ('by + "b" == "ab"', "refused", "`+` is not allowed on text", "+", None),
        ("size(attributes + attributes) > 1", "refused", "`+` is not allowed on lists", "+", None),
        ("1.0 + 1.0 == 2.0", "refused", "`+` is allowed only on whole numbers", "+", None),
        ('by.matches("a*")', "refused", "`matches` is not available", "matches", "`startsWith`"),
        ('attributes == ["zip"]', "refused", "`==` is not allowed on lists", "==", "no order"),
        ('attributes[0] == "zip"', "refused", "indexing a list", "[", "no order"),
        ("by in [mechanism]", "refused", "only constants", "[", None),
        ("1e400 > 1.0", "type", "too large", "1e400", None),
        ("1u == 1u", "refused", "not available", "==", None),
        ("null == null", "refused", "not available", "==", None),
        ('b"a" == b"a"', "refused", "not available", "==", None),
        ('int("1") == 1', "refused", "`int` is not available", "int", None),
        ('{"a": 1}.size() == 1', "refused", "not available", "size", None),
        ("dyn(by) == 1", "refused", "not available", "==", None),
        ("by < dyn(1)", "refused", "not available", "<", None),
        ("[].all(x, 'a' in x)", "refused", "type of `x`", "x", None),
    ],
)
def test_problems(text: str, kind: str, message: str, underlined: str, help_: str | None) -> None:
    problems = parse_predicate(text, SCHEMA)
    assert not isinstance(problems, Expression)
    fitting = [
        problem for problem in problems if problem.kind == kind and message in problem.message
    ]
    assert fitting, problems
    problem = fitting[0]
    assert text[problem.offset : problem.offset + problem.length] == underlined
    assert problem.length >= 1
    assert (problem.help is None) if help_ is None else (help_ in (problem.help or ""))
    assert all(problem.message[0] == "`" or problem.message[0].islower() for problem in problems)


def test_all_problems_are_reported_at_once_in_order() -> None:
    text = 'labels.stge == "x" || zip || labels["foo"] == "y"'
    problems = parse_predicate(text, SCHEMA)
    assert isinstance(problems, tuple)
    assert [problem.kind for problem in problems][:3] == ["unknown-label", "type", "unknown-label"]
    problems = parse_predicate(
        '"q" in attributes || by.matches("a") || labels.stage == "s"', SCHEMA
    )
    assert isinstance(problems, tuple)
    assert [problem.kind for problem in problems] == [
        "unknown-attribute",
        "refused",
        "unknown-value",
    ]


def test_offsets_count_characters_across_lines() -> None:
    text = 'by == "😀é" ||\n\n  "zipp" in attributes'
    problems = parse_predicate(text, SCHEMA)
    assert isinstance(problems, tuple)
    assert text[problems[0].offset :].startswith('"zipp"')
    text = 'by == "😀é" ||\n\n  zip'
    problems = parse_predicate(text, SCHEMA)
    assert isinstance(problems, tuple)
    assert text[problems[0].offset :] == "zip"


BOMBS = {
    "nested all": "attributes.all(a," * 28 + "true" + ")" * 28,
    "four quantifiers": "attributes.all(a," * 4 + "true" + ")" * 4,
    "parentheses": "(" * 10_000 + "true" + ")" * 10_000,
    "fewer parentheses": "(" * 2_000 + "true" + ")" * 2_000,
    "brackets": "[" * 4_000,
    "disjunction": " || ".join(["true"] * 5_000),
    "doubling": '["ha"]' + ".map(x, x + x)" * 24 + ".size() > 0",
    "sum": "+".join(["1"] * 2_000) + " > 0",
    "choices": "true ? " * 500 + "true" + " : true" * 500,
    "one long name": "a" * 4_000,
    "quotes": '"' * 4_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_rejected_in_time(name: str) -> None:
    started = time.perf_counter()
    problems = parse_predicate(BOMBS[name], SCHEMA)
    assert time.perf_counter() - started < 1
    assert isinstance(problems, tuple)
    assert all(isinstance(problem, ExpressionProblem) for problem in problems)


def test_bombs_are_rejected_in_little_memory() -> None:
    program = f"""
        from pathlib import Path
        from dpolicy.predicates.expression import parse_predicate
        from dpolicy.releases.release_schema import ReleaseSchema
        parse_predicate("true", ReleaseSchema())
        for text in {list(BOMBS.values())!r}:
            assert isinstance(parse_predicate(text, ReleaseSchema()), tuple)
        lines = Path("/proc/self/status").read_text().splitlines()
        print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    # The kernel's own high-water mark: `ru_maxrss` also counts the parent that forked.
    assert int(done.stdout) < 200 * 1024  # kB


def test_long_chains_are_accepted() -> None:
    text = " || ".join(['by == "another"'] * 150)
    assert evaluate(parse_valid(text, SCHEMA), INPUT) is False
    assert evaluate(parse_valid("!" * 4_000 + "true", SCHEMA), INPUT) is True


def test_nested_quantifiers_over_many_values_fail() -> None:
    names = tuple(f"attribute-{number}" for number in range(400))
    schema = ReleaseSchema(frozenset(names))
    text = "attributes.all(a, attributes.all(b, attributes.all(c, a != b || b != c || true)))"
    predicate = parse_valid(text, schema)
    assert matches(predicate, PredicateInput(names[:20]))
    assert MAX_STEPS < 400**2
    started = time.perf_counter()
    with pytest.raises(PredicateFailed, match="take too long"):
        matches(predicate, PredicateInput(names))
    assert time.perf_counter() - started < 0.1


def test_predicates_are_equal_by_their_text() -> None:
    assert parse_valid('"zip" in attributes', SCHEMA) == parse_valid('"zip" in attributes', SCHEMA)
    assert parse_valid("true", SCHEMA) != parse_valid("!false", SCHEMA)
    assert len({parse_valid("true", SCHEMA), parse_valid("true", SCHEMA), Always()}) == 2


def test_generated_scopes() -> None:
    assert matches(Always(), INPUT)
    assert matches(UsesAny(frozenset({"zip", "page-views"})), INPUT)
    assert not matches(UsesAny(frozenset({"page-views"})), INPUT)
    assert not matches(UsesAny(frozenset()), INPUT)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("true", False),
        ('"zip" in attributes', True),
        ('"diagnosis" in attributes', False),
        ('["diagnosis", "zip"].exists(a, a in attributes)', True),
        ('["diagnosis"].exists(a, a in attributes)', False),
        ('attributes.exists(a, a == "zip")', True),
        ('attributes.exists(a, a == "diagnosis")', False),
        ('attributes.all(a, a != "diagnosis")', False),
        ('attributes.all(a, a != "zip")', True),
        ('attributes.all(a, a == "diagnosis")', True),
        ('attributes.exists_one(a, a.startsWith("d"))', False),
        ("attributes.exists(a, a == labels.stage)", True),
        ("size(attributes) > 1", True),
        ("labels.stage in attributes", True),
        ('labels.purpose.exists(p, p == "research")', False),
        ('labels.purpose.exists(p, "zip" in attributes)', True),
    ],
)
def test_which_attributes_a_predicate_reads(text: str, reads: bool) -> None:
    assert reads_attribute(parse_valid(text, SCHEMA), "zip") is reads


def test_which_attributes_generated_scopes_read() -> None:
    assert not reads_attribute(Always(), "zip")
    assert reads_attribute(UsesAny(frozenset({"zip"})), "zip")
    assert not reads_attribute(UsesAny(frozenset({"diagnosis"})), "zip")


def test_the_library_is_loaded_only_for_the_first_expression() -> None:
    program = """
        import sys
        import dpolicy.predicates.implication.implication_check, dpolicy.predicates.cel_functions
        assert not {"cel_expr_python.cel", "z3"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_speed_for_the_record() -> None:
    texts = ['"zip" in attributes', 'labels.deployment == "standard" && "zip" in attributes']
    texts.append(" || ".join(f'"{name}" in attributes' for name in sorted(SCHEMA.attributes) * 13))
    for text in texts:
        started = time.perf_counter()
        for _ in range(20):
            predicate = parse_valid(text, SCHEMA)
        reading = (time.perf_counter() - started) / 20
        started = time.perf_counter()
        for _ in range(20_000):
            predicate.evaluate(INPUT)
        evaluating = (time.perf_counter() - started) / 20_000
        print(f"\n{text[:50]}: read {reading * 1e3:.2f} ms, evaluate {evaluating * 1e6:.2f} µs")
