"""Counterexample search with the z3 solver.

It is used if predicates inspect free text, or if the search has too many cases. z3 is an optional
extra; without it the implication stays undecided. The limit counts work, not time, so that a
policy gets the same result on every machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any

from dpolicy.predicates.evaluation import HIGHEST, LOWEST
from dpolicy.predicates.implication.case_space import CaseSpace, possible_texts
from dpolicy.predicates.implication.counterexample_search import complete_input
from dpolicy.predicates.implication.kleene import Key, ListUniverse, list_key
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    AttributeList,
    Comparison,
    Conditional,
    Constant,
    HasLabel,
    LabelText,
    LabelTextList,
    Literals,
    MechanismField,
    Membership,
    Not,
    Quantifier,
    QuantifierVariable,
    SizeOf,
    TextTest,
    Tree,
)
from dpolicy.releases.release_schema import PredicateInput, ReleaseSchema

#: Resource limit (`rlimit`) of z3, a few seconds. Policies that need z3 use few text functions.
MAX_SOLVER_WORK = 10_000_000
#: Maximum number of nodes after quantifiers are expanded value by value.
MAX_NODES = 20_000
#: z3 supports characters only up to 0x2FFFF. If all constants are at most this one, the characters
#: between the two limits can replace all other characters of Unicode.
MAX_CHARACTER = 0xFFFF


class _UnsupportedError(Exception):
    """Raised with the reason if a predicate cannot be translated for the solver."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Solver expression of a value, and of the condition that its evaluation fails."""

    value: Any
    failed: Any


@dataclass(slots=True)
class _Encoding:
    """Translation state: the solver variables of texts and lists, and constraints on them."""

    z3: Any
    schema: ReleaseSchema
    texts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)
    constraints: list[Any] = field(default_factory=list)
    nodes: int = 0


def solve_counterexample(
    first: Tree, second: Tree, schema: ReleaseSchema, reason: str
) -> PredicateInput | str | None:
    """Return a counterexample, None if there is none, or the reason why it is undecided.

    `reason` is the reason why the exhaustive search gave up.
    """
    try:
        z3 = import_module("z3")
    except ImportError:
        return f"{reason} (installing the extra `smt` may decide this)"
    encoding = _Encoding(z3, schema)
    solver = z3.Solver()
    solver.set("rlimit", MAX_SOLVER_WORK)
    try:
        matching, excluded = _encode(first, encoding, ()), _encode(second, encoding, ())
    except _UnsupportedError as unsupported:
        return f"{reason}; {unsupported}"
    solver.add(*encoding.constraints, matching.value, z3.Not(excluded.value))
    solver.add(z3.Not(matching.failed), z3.Not(excluded.failed))
    result = solver.check()
    if result == z3.unsat:
        return None
    if result != z3.sat:
        return f"{reason}; the solver reached its limit"
    return _read_model(solver.model(), encoding)


def _encode(tree: Tree, encoding: _Encoding, bound: tuple[_Term, ...]) -> _Term:
    encoding.nodes += 1
    if encoding.nodes > MAX_NODES:
        raise _UnsupportedError("the quantifiers range over too many values")
    match tree:
        case Constant(value):
            return _Term(_encode_constant(value, encoding.z3), encoding.z3.BoolVal(False))
        case QuantifierVariable(depth):
            return bound[depth]
        case MechanismField() | LabelText() | HasLabel():
            return _encode_input(tree, encoding)
        case AllOf(terms) | AnyOf(terms):
            present = encoding.z3.BoolVal(True)
            cases = [(present, _encode(term, encoding, bound)) for term in terms]
            return _encode_terms(cases, encoding.z3, decisive=isinstance(tree, AnyOf))
        case Conditional():
            return _encode_conditional(tree, encoding, bound)
        case Membership(element, container):
            return _encode_membership(_encode(element, encoding, bound), container, encoding)
        case SizeOf(AttributeList() | LabelTextList() | Literals() as container):
            return _Term(_encode_length(container, encoding), _encode_missing(container, encoding))
        case Quantifier():
            return _encode_quantifier(tree, encoding, bound)
        case _:
            return _encode_strict(tree, encoding, bound)


def _encode_strict(tree: Tree, encoding: _Encoding, bound: tuple[_Term, ...]) -> _Term:
    z3 = encoding.z3
    match tree:
        case Not(operand):
            inner = _encode(operand, encoding, bound)
            return _Term(z3.Not(inner.value), inner.failed)
        case SizeOf(operand):
            inner = _encode(operand, encoding, bound)
            return _Term(z3.Length(inner.value), inner.failed)
        case Comparison(symbol, left, right) | TextTest(symbol, left, right):
            first, second = _encode(left, encoding, bound), _encode(right, encoding, bound)
            failed = z3.Or(first.failed, second.failed)
            return _Term(_encode_comparison(symbol, first.value, second.value, z3), failed)
        case Arithmetic(symbol, left, right):
            first, second = _encode(left, encoding, bound), _encode(right, encoding, bound)
            return _encode_arithmetic(symbol, first, second, z3)
        case _:
            raise _UnsupportedError("the solver does not support part of the predicate")


def _encode_comparison(symbol: str, left: Any, right: Any, z3: Any) -> Any:
    if symbol in ("==", "!="):
        return (left == right) if symbol == "==" else (left != right)
    if z3.is_bool(left):
        raise _UnsupportedError("the solver cannot order boolean values")
    match symbol:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return right < left
        case ">=":
            return right <= left
        case "startsWith":
            return z3.PrefixOf(right, left)
        case "endsWith":
            return z3.SuffixOf(right, left)
        case _:
            return z3.Contains(left, right)


def _encode_arithmetic(symbol: str, left: _Term, right: _Term, z3: Any) -> _Term:
    first, second = left.value, right.value
    failed = z3.Or(left.failed, right.failed)
    if symbol in ("/", "%"):
        failed = z3.Or(failed, second == 0)
        quotient = z3.If(first >= 0, first / second, -((-first) / second))  # towards zero
        failed = z3.Or(failed, quotient > HIGHEST)
        return _Term(quotient if symbol == "/" else first - quotient * second, failed)
    value = {"+": first + second, "-": first - second, "*": first * second}[symbol]
    return _Term(value, z3.Or(failed, value < LOWEST, value > HIGHEST))


def _encode_conditional(tree: Conditional, encoding: _Encoding, bound: tuple[_Term, ...]) -> _Term:
    condition, first, second = (
        _encode(part, encoding, bound) for part in (tree.condition, tree.first, tree.second)
    )
    z3 = encoding.z3
    failed = z3.Or(condition.failed, z3.If(condition.value, first.failed, second.failed))
    return _Term(z3.If(condition.value, first.value, second.value), failed)


def _encode_terms(cases: list[tuple[Any, _Term]], z3: Any, *, decisive: bool) -> _Term:
    """Encode `||` and `exists` (True is decisive), or `&&` and `all` (False is decisive).

    A case is the condition that its value is in the list, and the term for that value.
    """
    is_decided = z3.Or(
        *(
            z3.And(present, z3.Not(term.failed), term.value if decisive else z3.Not(term.value))
            for present, term in cases
        )
    )
    failed = z3.Or(*(z3.And(present, term.failed) for present, term in cases))
    value = is_decided if decisive else z3.Not(is_decided)
    return _Term(value, z3.And(z3.Not(is_decided), failed))


def _encode_quantifier(tree: Quantifier, encoding: _Encoding, bound: tuple[_Term, ...]) -> _Term:
    z3 = encoding.z3
    cases = [
        (present, _encode(tree.body, encoding, (*bound, _Term(value, z3.BoolVal(False)))))
        for value, present in _list_elements(tree.over, encoding)
    ]
    if tree.quantifier == "exists_one":
        hits = z3.Sum([z3.IntVal(0), *(z3.If(z3.And(p, t.value), 1, 0) for p, t in cases)])
        result = _Term(hits == 1, z3.Or(*(z3.And(p, t.failed) for p, t in cases)))
    else:
        result = _encode_terms(cases, z3, decisive=tree.quantifier == "exists")
    return _Term(result.value, z3.Or(result.failed, _encode_missing(tree.over, encoding)))


def _encode_membership(element: _Term, container: Tree, encoding: _Encoding) -> _Term:
    z3 = encoding.z3
    hits = [z3.And(p, element.value == value) for value, p in _list_elements(container, encoding)]
    return _Term(z3.Or(*hits), z3.Or(element.failed, _encode_missing(container, encoding)))


def _encode_missing(container: Tree, encoding: _Encoding) -> Any:
    """Return the condition that a list is a label without a value; reading it is an error."""
    z3 = encoding.z3
    if not isinstance(container, LabelTextList):
        return z3.BoolVal(False)
    return z3.Not(z3.Or(*_list_variables(list_key(container), encoding).values()))


def _encode_length(container: Tree, encoding: _Encoding) -> Any:
    z3 = encoding.z3
    counts = [z3.If(present, 1, 0) for _, present in _list_elements(container, encoding)]
    return z3.Sum([z3.IntVal(0), *counts])


def _list_elements(container: Tree, encoding: _Encoding) -> list[tuple[Any, Any]]:
    z3 = encoding.z3
    if isinstance(container, Literals):
        return [(_encode_constant(item.value, z3), z3.BoolVal(True)) for item in container.items]
    source = list_key(container)
    return [
        (_encode_constant(value, z3), present)
        for value, present in _list_variables(source, encoding).items()
    ]


def _list_variables(source: str, encoding: _Encoding) -> dict[str, Any]:
    domain = possible_texts(source, encoding.schema)
    if domain is None:
        raise _UnsupportedError(f"`{source}` can contain any number of texts")
    if source not in encoding.lists:
        names = {value: encoding.z3.Bool(f"{source} holds {value}") for value in domain}
        encoding.lists[source] = names
    return encoding.lists[source]


def _encode_input(tree: MechanismField | LabelText | HasLabel, encoding: _Encoding) -> _Term:
    z3 = encoding.z3
    never = z3.BoolVal(False)
    if isinstance(tree, MechanismField):
        return _Term(_text_variable(tree.name, encoding), never)
    label, source = encoding.schema.labels[tree.name], f"labels.{tree.name}"
    if label.many:
        return _Term(z3.Or(*_list_variables(source, encoding).values()), never)
    value = _text_variable(source, encoding)
    missing = never
    if label.may_be_missing:
        missing = encoding.missing.setdefault(source, z3.Bool(f"{source} is missing"))
    return _Term(z3.Not(missing), never) if isinstance(tree, HasLabel) else _Term(value, missing)


def _text_variable(source: str, encoding: _Encoding) -> Any:
    z3 = encoding.z3
    if source not in encoding.texts:
        encoding.texts[source] = variable = z3.String(source)
        domain = possible_texts(source, encoding.schema)
        if domain is not None:
            encoding.constraints.append(
                z3.Or(*(variable == _encode_constant(value, z3) for value in domain))
            )
    return encoding.texts[source]


def _encode_constant(value: str | int | float | bool, z3: Any) -> Any:
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, float):
        exact = Fraction(value)
        return z3.Q(exact.numerator, exact.denominator)
    if any(ord(character) > MAX_CHARACTER for character in value):
        raise _UnsupportedError("a constant has a character that the solver does not support")
    # z3 interprets escapes, so everything but letters, digits and spaces is escaped.
    escaped = re.sub(r"[^A-Za-z0-9 ]", lambda match: f"\\u{{{ord(match[0]):x}}}", value)
    return z3.StringVal(escaped)


def _read_model(model: Any, encoding: _Encoding) -> PredicateInput | str:
    known_facts: dict[Key, str | int | bool | None] = {}
    for source, text in encoding.texts.items():
        value = known_facts[source, None] = _read_text(model, text)
        if any("\ud800" <= character <= "\udfff" for character in value):
            return "the counterexample of the solver is not valid text"
    for source, missing in encoding.missing.items():
        if _is_true(model, missing):
            known_facts[source, None] = None
    universes = {
        source: ListUniverse(tuple(variables), ()) for source, variables in encoding.lists.items()
    }
    for source, variables in encoding.lists.items():
        known_facts.update(
            {(source, value): _is_true(model, present) for value, present in variables.items()}
        )
    return complete_input(known_facts, CaseSpace(universes, {}, None), encoding.schema)


def _is_true(model: Any, term: Any) -> bool:
    return str(model.eval(term)) == "True"


def _read_text(model: Any, text: Any) -> str:
    escaped: str = model.eval(text, model_completion=True).as_string()
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: chr(int(match[1], 16)), escaped)
