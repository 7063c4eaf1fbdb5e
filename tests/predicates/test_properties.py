"""Properties of random predicates: closures equal the library; implication holds for all inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from cel_expr_python import cel  # type: ignore[import-untyped]
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.predicates.predicate_strategies import (
    ALL_INPUTS,
    SCHEMA,
    evaluate,
    inputs,
    parse_valid,
    texts,
)

from dpolicy.predicates.expression import Expression, Predicate, UsesAny, reads_attribute
from dpolicy.predicates.implication import counterexample_search, z3_solver
from dpolicy.predicates.implication.case_space import CaseSpace, build_case_space
from dpolicy.predicates.implication.implication_check import (
    Implied,
    Refuted,
    Undecided,
    implies,
)
from dpolicy.predicates.implication.kleene import ListUniverse
from dpolicy.predicates.tree import Tree
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

Verdict = Implied | Refuted | Undecided
quick = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
slow = settings(quick, max_examples=80)
sets_of_attributes = st.frozensets(st.sampled_from("abc"))


@cache
def oracle() -> Any:
    """Return an environment of the library with `labels` as a map, without rewrites and types."""
    kinds = cel.Type
    return cel.NewEnv(
        variables={
            "attributes": kinds.List(kinds.STRING),
            "labels": kinds.Map(kinds.STRING, kinds.DYN),
            "mechanism": kinds.STRING,
            "by": kinds.STRING,
        }
    )


def evaluate_with_library(text: str, sample: PredicateInput) -> bool | None:
    present = {name: value for name, value in sample.labels.items() if value != ()}
    labels = {k: list(v) if isinstance(v, tuple) else v for k, v in present.items()}
    result = (
        oracle()
        .compile(text)
        .eval(
            data={
                "attributes": list(sample.attributes),
                "labels": labels,
                "mechanism": sample.mechanism,
                "by": sample.by,
            }
        )
    )
    return None if result.type() == cel.Type.ERROR else bool(result.value())


@quick
@given(texts, st.lists(inputs, min_size=1, max_size=8))
def test_closures_agree_with_the_library(text: str, samples: list[PredicateInput]) -> None:
    predicate = parse_valid(text)
    for sample in samples:
        assert evaluate(predicate, sample) is evaluate_with_library(text, sample), sample


@pytest.mark.parametrize("outcome", [True, False, None])
def test_the_generator_reaches_matches_misses_and_errors(outcome: bool | None) -> None:
    find(
        st.tuples(texts, inputs),
        lambda case: evaluate(parse_valid(case[0]), case[1]) is outcome,
        settings=settings(quick, max_examples=2000),
    )


def counterexample(first: Predicate, second: Predicate) -> PredicateInput | None:
    """Search all inputs for a counterexample."""
    for sample in ALL_INPUTS:
        if evaluate(first, sample) is True and evaluate(second, sample) is False:
            return sample
    return None


def disagreement(
    first: Predicate, second: Predicate, decide: Callable[[Predicate, Predicate], Verdict]
) -> str | None:
    """Return how the result of `decide` differs from that of the exhaustive search, if it does."""
    verdict, example = decide(first, second), counterexample(first, second)
    if isinstance(verdict, Undecided):
        return f"undecided: {verdict.reason}"
    if isinstance(verdict, Implied) and example is not None:
        return f"not implied: {example}"
    if isinstance(verdict, Refuted) and example is None:
        return f"no counter-example: {verdict.counterexample}"
    return None


def decide_implication(first: Predicate, second: Predicate) -> Verdict:
    return implies(first, second, SCHEMA)


@slow
@given(texts, texts)
def test_implication_agrees_with_an_exhaustive_search(one: str, other: str) -> None:
    assert disagreement(parse_valid(one), parse_valid(other), decide_implication) is None


@slow
@given(texts, texts)
def test_a_conjunction_implies_its_parts(one: str, other: str) -> None:
    assert (
        disagreement(parse_valid(f"({one}) && ({other})"), parse_valid(one), decide_implication)
        is None
    )
    assert (
        disagreement(parse_valid(one), parse_valid(f"({one}) || ({other})"), decide_implication)
        is None
    )


@slow
@given(texts, sets_of_attributes)
def test_implication_between_expressions_and_generated_scopes(
    text: str, attributes: frozenset[str]
) -> None:
    assert disagreement(parse_valid(text), UsesAny(attributes), decide_implication) is None
    assert disagreement(UsesAny(attributes), parse_valid(text), decide_implication) is None


@quick
@given(sets_of_attributes, sets_of_attributes)
def test_generated_scopes_equal_their_disjunctions(
    one: frozenset[str], other: frozenset[str]
) -> None:
    spelled = parse_valid(
        " || ".join(["false", *(f'"{name}" in attributes' for name in sorted(one))])
    )
    assert (
        decide_implication(UsesAny(one), spelled)
        == Implied()
        == decide_implication(spelled, UsesAny(one))
    )
    assert isinstance(decide_implication(UsesAny(one), UsesAny(other)), Implied) is (one <= other)
    assert disagreement(UsesAny(one), UsesAny(other), decide_implication) is None
    assert all(
        evaluate(spelled, sample) is evaluate(UsesAny(one), sample) for sample in ALL_INPUTS[::97]
    )


@slow
@given(texts)
def test_equivalent_texts_imply_each_other(text: str) -> None:
    original = parse_valid(text)
    for same in (f"({text}) && true", f"!!({text})", f"false || ({text})", f" ({text}) "):
        changed = parse_valid(same)
        assert (
            decide_implication(original, changed)
            == Implied()
            == decide_implication(changed, original)
        )


@slow
@given(texts, st.sampled_from("abc"))
def test_an_attribute_that_is_not_read_changes_nothing(text: str, attribute: str) -> None:
    predicate = parse_valid(text)
    if reads_attribute(predicate, attribute):
        return
    for sample in ALL_INPUTS[::7]:
        without = tuple(name for name in sample.attributes if name != attribute)
        used = tuple(sorted({*without, attribute}))
        answers = {
            evaluate(
                predicate, PredicateInput(attributes, sample.labels, sample.mechanism, sample.by)
            )
            for attributes in (without, used)
        }
        assert len(answers) == 1


@settings(quick, max_examples=60)
@given(texts, texts)
def test_the_solver_is_never_wrong(one: str, other: str) -> None:
    first, second = parse_valid(one), parse_valid(other)
    example = z3_solver.solve_counterexample(first.tree, second.tree, SCHEMA, "")
    if example is None:
        assert counterexample(first, second) is None
    elif isinstance(example, PredicateInput):
        assert evaluate(first, example) is True and evaluate(second, example) is False


#: Six attributes of which predicates name one or two and cannot distinguish the others.
WIDE = ReleaseSchema(frozenset("abcdef"), {"words": Label("words", None, many=True)})
WIDE_INPUTS = tuple(
    PredicateInput(attributes, {"words": words}, by=by)
    for size in range(7)
    for attributes in combinations("abcdef", size)
    for words in [(), ("a",), ("a", "k"), ("k",), ("k", "l"), ("a", "k", "l", "m"), ("k", "l", "m")]
    for by in ("a", "k", "z")
)


def nest(over: str, bodies: list[str]) -> SearchStrategy[str]:
    quantifiers = st.sampled_from(["all", "exists", "exists_one"])
    text = f"{over}.{{}}(v, {over}.{{}}(w, {{}}))"
    return st.builds(text.format, quantifiers, quantifiers, st.sampled_from(bodies))


counting: SearchStrategy[str] = st.recursive(
    st.one_of(
        st.sampled_from(['"a" in attributes', '"a" in labels.words', "by in labels.words"]),
        st.builds(
            "size({}) {} {}".format,
            st.sampled_from(["attributes", "labels.words"]),
            st.sampled_from(["==", "<", ">="]),
            st.integers(0, 3),
        ),
        nest("attributes", ["v == w", "v != w", 'v == "a" || v == w', 'v != w && v != "b"']),
        nest("labels.words", ["v == w", "v != w", 'v == "a" || v == w', "v == w || w == by"]),
    ),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=3,
)


@quick
@given(counting, counting)
def test_unnamed_values_are_counted_correctly(one: str, other: str) -> None:
    first, second = parse_valid(one, WIDE), parse_valid(other, WIDE)
    verdict = implies(first, second, WIDE)
    assert not isinstance(verdict, Undecided)
    if isinstance(verdict, Implied):  # `implies` verifies counterexamples
        for sample in WIDE_INPUTS:
            assert not (evaluate(first, sample) is True and evaluate(second, sample) is False), (
                sample
            )


pieces = st.text("ab-é\\", max_size=3)
about_text = st.recursive(
    st.one_of(
        st.builds(
            "by.{}({})".format,
            st.sampled_from(["startsWith", "endsWith", "contains"]),
            pieces.map(json.dumps),
        ),
        st.builds("by {} {}".format, st.sampled_from(["==", "<", ">="]), pieces.map(json.dumps)),
        st.builds("by.size() {} {}".format, st.sampled_from(["==", "<", ">"]), st.integers(0, 4)),
    ),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=3,
)


@settings(quick, max_examples=60)
@given(about_text, about_text, st.lists(pieces | st.text(max_size=4), min_size=20, max_size=20))
def test_free_text_is_decided_soundly(one: str, other: str, authors: list[str]) -> None:
    first, second = parse_valid(one), parse_valid(other)
    if isinstance(implies(first, second, SCHEMA), Implied):
        for by in authors:
            assert not (
                evaluate(first, PredicateInput(by=by)) is True
                and evaluate(second, PredicateInput(by=by)) is False
            )


def test_the_properties_detect_a_case_space_without_an_attribute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop_attribute(trees: Iterable[Tree], schema: ReleaseSchema) -> CaseSpace:
        case_space = build_case_space(trees, schema)
        case_space.options.pop(("attributes", "a"), None)
        if "attributes" in case_space.universes:
            universe = case_space.universes["attributes"]
            kept = tuple(name for name in universe.named if name != "a")
            case_space.universes["attributes"] = ListUniverse(kept, universe.interchangeable)
        return case_space

    monkeypatch.setattr(counterexample_search, "build_case_space", drop_attribute)
    counterexamples = find(
        st.tuples(texts, texts),
        lambda pair: (
            disagreement(parse_valid(pair[0]), parse_valid(pair[1]), decide_implication) is not None
        ),
        settings=settings(quick, max_examples=2000),
    )
    assert isinstance(parse_valid(counterexamples[0]), Expression)
