"""Hypothesis strategies: a small vocabulary, all inputs that it allows, and random predicates."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.expression import Expression, Predicate, matches, parse_predicate
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

#: Some values are in several domains, so that two inputs can be equal.
SCHEMA = ReleaseSchema(
    frozenset({"a", "b", "c"}),
    {
        "one": Label("one", ("a", "x"), default="x"),
        "maybe": Label("maybe", ("a", "q")),
        "tags": Label("tags", ("a", "t"), many=True),
    },
)
TEXTS_FOR_BY = ("me", "a", "x", "another author")  # `by` is compared with the first three


def _subsets(values: tuple[str, ...]) -> list[tuple[str, ...]]:
    sizes = range(len(values) + 1)
    return [subset for size in sizes for subset in itertools.combinations(values, size)]


ALL_INPUTS: tuple[PredicateInput, ...] = tuple(
    PredicateInput(
        attributes,
        {"one": one, "tags": tags} | ({} if maybe is None else {"maybe": maybe}),
        mechanism,
        by,
    )
    for attributes in _subsets(("a", "b", "c"))
    for one in ("a", "x")
    for maybe in (None, "a", "q")
    for tags in _subsets(("a", "t"))
    for mechanism in MECHANISM_KINDS
    for by in TEXTS_FOR_BY
)

_sizes = st.sampled_from(["size(attributes)", "labels.tags.size()", "0", "1", "2", "3"])
_orders = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
_numbers = st.recursive(
    _sizes,
    lambda inner: st.builds(
        "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner
    ),
    max_leaves=3,
)
_texts = st.sampled_from(["labels.one", "labels.maybe", "mechanism"])

_atoms = st.one_of(
    st.builds('"{}" in attributes'.format, st.sampled_from("abc")),
    st.builds('"{}" in labels.tags'.format, st.sampled_from("at")),
    st.builds("labels.one {} {}".format, _orders, st.sampled_from(['"a"', '"x"', "labels.maybe"])),
    st.builds('labels["maybe"] {} "{}"'.format, _orders, st.sampled_from("aq")),
    st.builds('mechanism {} "{}"'.format, _orders, st.sampled_from(["laplace", "gaussian"])),
    st.builds('by {} "{}"'.format, st.sampled_from(["==", "!="]), st.sampled_from(["me", "x"])),
    st.builds("by {} labels.one".format, st.sampled_from(["==", "!="])),
    st.builds(
        "{}.{}('{}')".format, _texts, st.sampled_from(["startsWith", "contains"]), st.just("a")
    ),
    st.builds("{} {} {}".format, _numbers, _orders, _numbers),
    st.sampled_from(
        [
            "has(labels.maybe)",
            "has(labels.one)",
            'labels.one in ["a"]',
            "labels.one in labels.tags",
            "labels.maybe in attributes",
            'size("é") == 1',
            "true",
            "false",
        ]
    ),
)


def _tests_of(variable: str) -> SearchStrategy[str]:
    return st.sampled_from(
        [
            f'{variable} == "a"',
            f'{variable} != "a"',
            f'{variable} in ["a"]',
            f"{variable} in attributes",
            f"{variable} in labels.tags",
            f"{variable} == labels.one",
            f"{variable} == labels.maybe",
            f'{variable}.startsWith("a")',
            f'{variable} < "b"',
            f"size({variable}) == 1",
            f"{variable} == v",
        ]
    )


def _combine(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    )


def _quantify(variable: str, body: SearchStrategy[str]) -> SearchStrategy[str]:
    lists = st.sampled_from(["attributes", "labels.tags", '["a"]', '["a", "a"]'])
    quantifiers = st.sampled_from(["all", "exists", "exists_one"])
    return st.builds(f"{{}}.{{}}({variable}, {{}})".format, lists, quantifiers, body)


_inner = st.recursive(st.one_of(_tests_of("w"), _atoms), _combine, max_leaves=2)
_body = st.recursive(
    st.one_of(_tests_of("v"), _atoms, _quantify("w", _inner)), _combine, max_leaves=3
)
texts: SearchStrategy[str] = st.recursive(
    st.one_of(_atoms, _quantify("v", _body)), _combine, max_leaves=6
)
inputs: SearchStrategy[PredicateInput] = st.sampled_from(ALL_INPUTS)


def parse_valid(text: str, schema: ReleaseSchema = SCHEMA) -> Expression:
    """Parse a predicate; fail if it has problems."""
    result = parse_predicate(text, schema)
    assert isinstance(result, Expression), (text, result)
    return result


def evaluate(predicate: Predicate, predicate_input: PredicateInput) -> bool | None:
    """Return the result of a predicate, or None if its evaluation fails."""
    try:
        return matches(predicate, predicate_input)
    except PredicateFailed:
        return None
