"""Random predicates: our closures against the library, implication against all mechanisms."""

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
from tests.predicates.generated import ALL_FACTS, SCHEMA, answer, facts, read, texts

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
    """The library with `labels` as an ordinary map: nothing of our spelling or typing."""
    kinds = cel.Type
    return cel.NewEnv(
        variables={
            "attributes": kinds.List(kinds.STRING),
            "labels": kinds.Map(kinds.STRING, kinds.DYN),
            "mechanism": kinds.STRING,
            "by": kinds.STRING,
        }
    )


def by_the_library(text: str, about: PredicateInput) -> bool | None:
    labels = {k: list(v) if isinstance(v, tuple) else v for k, v in about.labels.items()}
    result = (
        oracle()
        .compile(text)
        .eval(
            data={
                "attributes": list(about.attributes),
                "labels": labels,
                "mechanism": about.mechanism,
                "by": about.by,
            }
        )
    )
    return None if result.type() == cel.Type.ERROR else bool(result.value())


@quick
@given(texts, st.lists(facts, min_size=1, max_size=8))
def test_closures_say_what_the_library_says(text: str, some: list[PredicateInput]) -> None:
    predicate = read(text)
    for about in some:
        assert answer(predicate, about) is by_the_library(text, about), about


@pytest.mark.parametrize("outcome", [True, False, None])
def test_the_generator_reaches_matches_misses_and_errors(outcome: bool | None) -> None:
    find(st.tuples(texts, facts), lambda case: answer(read(case[0]), case[1]) is outcome)


def counterexample(first: Predicate, second: Predicate) -> PredicateInput | None:
    """By looking at every mechanism there is."""
    for about in ALL_FACTS:
        if answer(first, about) is True and answer(second, about) is False:
            return about
    return None


def disagreement(
    first: Predicate, second: Predicate, decide: Callable[[Predicate, Predicate], Verdict]
) -> str | None:
    """How `decide` differs from the truth, if it does."""
    verdict, found = decide(first, second), counterexample(first, second)
    if isinstance(verdict, Undecided):
        return f"undecided: {verdict.reason}"
    if isinstance(verdict, Implied) and found is not None:
        return f"not implied: {found}"
    if isinstance(verdict, Refuted) and found is None:
        return f"no counter-example: {verdict.counterexample}"
    return None


def decided(first: Predicate, second: Predicate) -> Verdict:
    return implies(first, second, SCHEMA)


@slow
@given(texts, texts)
def test_implication_is_the_truth_about_all_mechanisms(one: str, other: str) -> None:
    assert disagreement(read(one), read(other), decided) is None


@slow
@given(texts, texts)
def test_implication_of_parts_is_seen(one: str, other: str) -> None:
    assert disagreement(read(f"({one}) && ({other})"), read(one), decided) is None
    assert disagreement(read(one), read(f"({one}) || ({other})"), decided) is None


@slow
@given(texts, sets_of_attributes)
def test_implication_between_expressions_and_generated_scopes(
    text: str, attributes: frozenset[str]
) -> None:
    assert disagreement(read(text), UsesAny(attributes), decided) is None
    assert disagreement(UsesAny(attributes), read(text), decided) is None


@quick
@given(sets_of_attributes, sets_of_attributes)
def test_generated_scopes_equal_their_disjunctions(
    one: frozenset[str], other: frozenset[str]
) -> None:
    spelled = read(" || ".join(["false", *(f'"{name}" in attributes' for name in sorted(one))]))
    assert decided(UsesAny(one), spelled) == Implied() == decided(spelled, UsesAny(one))
    assert isinstance(decided(UsesAny(one), UsesAny(other)), Implied) is (one <= other)
    assert disagreement(UsesAny(one), UsesAny(other), decided) is None
    assert all(answer(spelled, about) is answer(UsesAny(one), about) for about in ALL_FACTS[::97])


@slow
@given(texts)
def test_meaningless_changes_change_nothing(text: str) -> None:
    original = read(text)
    for same in (f"({text}) && true", f"!!({text})", f"false || ({text})", f" ({text}) "):
        changed = read(same)
        assert decided(original, changed) == Implied() == decided(changed, original)


@slow
@given(texts, st.sampled_from("abc"))
def test_an_attribute_that_is_not_read_changes_nothing(text: str, attribute: str) -> None:
    predicate = read(text)
    if reads_attribute(predicate, attribute):
        return
    for about in ALL_FACTS[::7]:
        without = tuple(name for name in about.attributes if name != attribute)
        used = tuple(sorted({*without, attribute}))
        answers = {
            answer(predicate, PredicateInput(attributes, about.labels, about.mechanism, about.by))
            for attributes in (without, used)
        }
        assert len(answers) == 1


@settings(quick, max_examples=60)
@given(texts, texts)
def test_the_solver_is_never_wrong(one: str, other: str) -> None:
    first, second = read(one), read(other)
    found = z3_solver.solve_counterexample(first.tree, second.tree, SCHEMA, "")
    if found is None:
        assert counterexample(first, second) is None
    elif isinstance(found, PredicateInput):
        assert answer(first, found) is True and answer(second, found) is False


#: Six attributes of which predicates name one or two: the rest look alike to them.
WIDE = ReleaseSchema(frozenset("abcdef"), {"words": Label("words", None, many=True)})
WIDE_FACTS = tuple(
    PredicateInput(attributes, {"words": words}, by=by)
    for size in range(7)
    for attributes in combinations("abcdef", size)
    for words in [(), ("a",), ("a", "k"), ("k",), ("k", "l"), ("a", "k", "l", "m"), ("k", "l", "m")]
    for by in ("a", "k", "z")
)


def nested(over: str, bodies: list[str]) -> SearchStrategy[str]:
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
        nested("attributes", ["v == w", "v != w", 'v == "a" || v == w', 'v != w && v != "b"']),
        nested("labels.words", ["v == w", "v != w", 'v == "a" || v == w', "v == w || w == by"]),
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
def test_values_nobody_names_are_counted_right(one: str, other: str) -> None:
    first, second = read(one, WIDE), read(other, WIDE)
    verdict = implies(first, second, WIDE)
    assert not isinstance(verdict, Undecided)
    if isinstance(verdict, Implied):  # a counter-example is checked where it is found
        for about in WIDE_FACTS:
            assert not (answer(first, about) is True and answer(second, about) is False), about


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
def test_free_text_is_decided_soundly(one: str, other: str, some: list[str]) -> None:
    first, second = read(one), read(other)
    if isinstance(implies(first, second, SCHEMA), Implied):
        for by in some:
            assert not (
                answer(first, PredicateInput(by=by)) is True
                and answer(second, PredicateInput(by=by)) is False
            )


def test_an_implication_that_forgets_an_attribute_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(trees: Iterable[Tree], schema: ReleaseSchema) -> CaseSpace:
        asked = build_case_space(trees, schema)
        asked.options.pop(("attributes", "a"), None)
        if "attributes" in asked.universes:
            whole = asked.universes["attributes"]
            kept = tuple(name for name in whole.named if name != "a")
            asked.universes["attributes"] = ListUniverse(kept, whole.alike)
        return asked

    monkeypatch.setattr(counterexample_search, "build_case_space", forgetful)
    caught = find(
        st.tuples(texts, texts),
        lambda pair: disagreement(read(pair[0]), read(pair[1]), decided) is not None,
        settings=settings(quick, max_examples=2000),
    )
    assert isinstance(read(caught[0]), Expression)
