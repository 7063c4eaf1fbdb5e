"""Implication by example: generated scopes, closed and free text, counting, and the solver."""

from __future__ import annotations

import sys

import pytest
from tests.predicates.predicate_strategies import parse_valid

from dpolicy.errors import InvariantBroken
from dpolicy.predicates.expression import Always, Expression, Predicate, UsesAny, matches
from dpolicy.predicates.implication import counterexample_search, z3_solver
from dpolicy.predicates.implication.implication_check import (
    Implied,
    Refuted,
    Undecided,
    conjunction,
    implies,
)
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

SCHEMA = ReleaseSchema(
    frozenset(f"attribute-{number}" for number in range(60)),
    {
        "stage": Label("stage", ("final", "tuning"), required=True),
        "deployment": Label("deployment", ("standard", "black-box"), default="standard"),
        "maybe": Label("maybe", ("p", "q", "r")),
        "purpose": Label("purpose", ("research", "product", "audit"), many=True),
        "dataset": Label("dataset", None, required=True),
        "words": Label("words", None, many=True),
        "tags": Label("tags", None, many=True),
    },
)


def is_implied(first: str | Predicate, second: str | Predicate) -> bool:
    """Check the implication; verify that a counterexample is a valid mechanism."""
    one, other = (parse_valid(p, SCHEMA) if isinstance(p, str) else p for p in (first, second))
    verdict = implies(one, other, SCHEMA)
    assert not isinstance(verdict, Undecided), verdict
    if isinstance(verdict, Refuted):
        example = verdict.counterexample
        assert matches(one, example) and not matches(other, example)
        assert {"stage", "deployment", "purpose", "dataset", "words"} <= example.labels.keys()
        assert set(example.attributes) <= SCHEMA.attributes
    return isinstance(verdict, Implied)


def uses(*numbers: int) -> str:
    return " || ".join(f'"attribute-{number}" in attributes' for number in numbers)


def scope(*numbers: int) -> UsesAny:
    return UsesAny(frozenset(f"attribute-{number}" for number in numbers))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (scope(1), scope(1, 2), True),
        (scope(1, 2), scope(1), False),
        (scope(1), Always(), True),
        (Always(), scope(1), False),
        (scope(), scope(1), True),
        (scope(), "false", True),
        (Always(), "true", True),
        (scope(1, 2), uses(1, 2, 3), True),
        (uses(1, 2), scope(1), False),
        (uses(*range(40)), uses(*range(60)), True),
        (uses(*range(60)), uses(*range(40)), False),
        (f"!({uses(1, 2)})", f"!({uses(1)})", True),
        (f"!({uses(1)})", f"!({uses(1, 2)})", False),
        ('labels.stage == "final"', 'labels.stage in ["final", "tuning"]', True),
        ('labels.stage in ["final", "tuning"]', 'labels.stage == "final"', False),
        (Always(), 'labels.stage in ["final", "tuning"]', True),
        ('labels.stage != "final"', 'labels.stage == "tuning"', True),
        ('labels.maybe != "p"', 'labels.maybe == "q"', False),
        (Always(), "has(labels.stage)", True),
        (Always(), "has(labels.maybe)", False),
        ('labels.maybe == "p"', "has(labels.maybe)", True),
        ('"audit" in labels.purpose', "has(labels.purpose)", True),
        ("has(labels.purpose)", "size(labels.purpose) > 0", True),
        ("size(labels.purpose) == 3", '"audit" in labels.purpose', True),
        ("size(labels.purpose) == 2", '"audit" in labels.purpose', False),
        ("size(attributes) > 59", uses(7), True),
        ("size(attributes) > 58", uses(7), False),
        ("size(attributes) % 2 == 1", "size(attributes) > 0", True),
        ("attributes.exists_one(a, true)", "size(attributes) == 1", True),
        ("size(attributes) == 1", "attributes.exists_one(a, true)", True),
        ("attributes.exists(a, attributes.exists(b, a != b))", "size(attributes) > 1", True),
        ("attributes.all(a, attributes.all(b, a == b))", "size(attributes) < 2", True),
        ("size(attributes) < 2", "attributes.all(a, attributes.all(b, a == b))", True),
        ("attributes.all(a, a == 'attribute-1')", f"!({uses(2)})", True),
        ('mechanism.startsWith("discrete")', 'mechanism in ["discrete-laplace"]', False),
        ('mechanism == "laplace"', 'mechanism.endsWith("laplace")', True),
        ('by == "x"', 'by != "y"', True),
        ('by != "x"', 'by == "y"', False),
        ('by == labels.dataset && by == "x"', 'labels.dataset == "x"', True),
        ("by == labels.dataset && mechanism == by", "mechanism == labels.dataset", True),
        ("by != labels.dataset", 'by == "x" || labels.dataset == "x"', False),
        ('labels.words.all(w, w == "x")', '!("y" in labels.words)', True),
        ('"x" in labels.words && "y" in labels.words', "size(labels.words) > 1", True),
        ("size(labels.words) > 1", "labels.words.exists(v, labels.words.all(w, v == w))", False),
        ("size(labels.words) == 1", "labels.words.exists(v, labels.words.all(w, v == w))", True),
        ("by in labels.words && labels.dataset in labels.words", "size(labels.words) > 1", False),
        (
            "by in labels.words && labels.dataset in labels.words && by != labels.dataset",
            "size(labels.words) > 1",
            True,
        ),
    ],
)
def test_implications(first: str | Predicate, second: str | Predicate, expected: bool) -> None:
    assert is_implied(first, second) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ('by.startsWith("web-team")', 'by.startsWith("web")', True),
        ('by.startsWith("web")', 'by.startsWith("web-team")', False),
        ('by == "web-1"', 'by.startsWith("web")', True),
        ('by.contains("\\\\u{41}") && by.size() == 6', 'by == "\\\\u{41}"', True),
        ('by < "b"', 'by < "c"', True),
        ('by < "c" && by.size() == 1', 'by < "b"', False),
        ('labels.dataset.endsWith("é-x")', 'labels.dataset.contains("é")', True),
        ('labels.dataset.contains("x") && has(labels.maybe)', 'labels.maybe != "p"', False),
        ('"product" in labels.purpose && by.size() > 3', "size(labels.purpose) > 0", True),
        ("attributes.exists(a, a == by && by.startsWith('attribute-5'))", "by.size() < 13", True),
        ("attributes.exists_one(a, a == by) && by.contains('-7')", uses(7), True),
        ("by.size() - 7 / 2 == 1", "by.size() == 4", True),
        ("by.size() % -3 == 1 && by.size() < 5", "by.size() in [1, 4]", True),
        (
            "(has(labels.maybe) ? by : labels.dataset).startsWith('z')",
            "by != labels.dataset",
            False,
        ),
    ],
)
def test_free_text_is_put_to_the_solver(first: str, second: str, expected: bool) -> None:
    assert is_implied(first, second) is expected


def test_the_conjunction_of_scopes_is_not_its_text() -> None:
    both = conjunction([parse_valid(uses(1, 2), SCHEMA), Always(), scope(3)])
    assert (
        is_implied(both, scope(3))
        and is_implied(both, uses(1, 2))
        and not is_implied(scope(3), both)
    )
    assert both == parse_valid(f"({uses(1, 2)}) && ({uses(3)})", SCHEMA)
    assert conjunction([Always()]) == Always() and conjunction([scope(3)]) == scope(3)
    cut = conjunction(
        [
            parse_valid("true // x", SCHEMA),
            parse_valid(uses(1), SCHEMA),
            parse_valid("true", SCHEMA),
        ]
    )
    longer = conjunction(
        [parse_valid(f"true // x) && ({uses(1)}", SCHEMA), parse_valid("true", SCHEMA)]
    )
    assert isinstance(cut, Expression) and cut == longer  # the same text, and yet
    assert not is_implied(longer, cut)


def test_a_predicate_that_can_never_match() -> None:
    nothing = UsesAny(frozenset())
    assert is_implied(
        f'labels.stage == "final" && labels.stage == "tuning" && ({uses(1)})', nothing
    )
    assert not is_implied('labels.stage == "final"', nothing)


def test_facts_on_which_a_predicate_fails_refute_nothing() -> None:
    assert is_implied('labels.maybe == "p" || true', "true")
    assert is_implied(Always(), 'labels.maybe in ["p", "q", "r"]')  # where it is missing: denied
    assert not is_implied(Always(), 'has(labels.maybe) && labels.maybe in ["p", "q", "r"]')


def test_without_a_solver_the_question_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    one, other = (
        parse_valid('by.startsWith("ab")', SCHEMA),
        parse_valid('by.startsWith("a")', SCHEMA),
    )
    verdict = implies(one, other, SCHEMA)
    assert isinstance(verdict, Undecided)
    assert "`smt`" in verdict.reason


def test_an_implication_without_proof_or_counterexample_is_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = parse_valid('labels.words.exists(w, w.startsWith("ab"))', SCHEMA)
    other = parse_valid('labels.words.exists(w, w.startsWith("a"))', SCHEMA)
    assert isinstance(implies(one, other, SCHEMA), Undecided)
    assert isinstance(
        implies(parse_valid("labels.words.all(w, w in labels.tags)", SCHEMA), one, SCHEMA),
        Undecided,
    )
    monkeypatch.setattr(z3_solver, "MAX_SOLVER_WORK", 1)
    hard = parse_valid('by.contains("a") && by.contains("b") && by.size() < 3', SCHEMA)
    assert isinstance(implies(hard, parse_valid('by in ["ab", "ba"]', SCHEMA), SCHEMA), Undecided)


def test_free_lists_compared_with_much_else_have_too_many_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The default of two million is not enough either.
    monkeypatch.setattr(counterexample_search, "MAX_EVALUATIONS", 100_000)
    schema = ReleaseSchema(frozenset("abcdef"), {"words": Label("words", None, many=True)})
    one = parse_valid("labels.words.exists(v, labels.words.all(w, v == w || w == by))", schema)
    other = parse_valid("attributes.all(v, attributes.exists(w, v == w || w == by))", schema)
    assert isinstance(implies(one, other, schema), Undecided)  # though it is true


def test_beyond_the_limit_the_solver_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterexample_search, "MAX_EVALUATIONS", 1_000)
    assert is_implied(uses(*range(40)), uses(*range(60)))
    assert not is_implied(uses(*range(60)), uses(*range(40)))


def test_a_counterexample_too_large_to_evaluate_is_undecided() -> None:
    schema = ReleaseSchema(frozenset(f"attribute-{number}" for number in range(230)))
    pairs = "attributes.all(a, attributes.all(b, a == b || a != b))"
    first = parse_valid(f"{pairs} && size(attributes) > 227", schema)
    verdict = implies(first, parse_valid("size(attributes) > 229", schema), schema)
    assert isinstance(verdict, Undecided)


def test_a_wrong_counterexample_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        counterexample_search,
        "search_counterexample",
        lambda first, second, schema: PredicateInput(),
    )
    with pytest.raises(InvariantBroken):
        implies(parse_valid(uses(1), SCHEMA), parse_valid(uses(1, 2), SCHEMA), SCHEMA)
