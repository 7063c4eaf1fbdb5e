"""Turns two typed trees into a question for the z3 solver, and its answer into facts.

The last resort, where text of any kind is looked into or the search has too many cases. z3 is an
optional extra; without it the question stays open. The limit is one of work, not of time, so that
the same policy gets the same answer on every machine.
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

#: z3's own measure of work; some seconds. Policies that need it use a handful of text functions.
WORK_LIMIT = 10_000_000
#: Nodes after quantifiers are written out value by value.
NODE_LIMIT = 20_000
#: z3 knows characters up to 0x2FFFF only. If no constant is beyond this one, whatever Unicode can
#: tell apart can be told apart with the characters between the two limits.
HIGHEST_CHARACTER = 0xFFFF


class _BeyondSolverError(Exception):
    """Something that is not put to the solver, with the reason."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A value as the solver sees it, and when reading it fails."""

    value: Any
    failed: Any


@dataclass(slots=True)
class _Question:
    """What the solver is asked, as it is put together."""

    z3: Any
    schema: ReleaseSchema
    texts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)
    rules: list[Any] = field(default_factory=list)
    nodes: int = 0


def solve_counterexample(
    first: Tree, second: Tree, schema: ReleaseSchema, reason: str
) -> PredicateInput | str | None:
    """Facts that match `first` and not `second`; None if there are none; or why nobody knows."""
    try:
        z3 = import_module("z3")
    except ImportError:
        return f"{reason} (the extra `smt` may decide this)"
    question = _Question(z3, schema)
    solver = z3.Solver()
    solver.set("rlimit", WORK_LIMIT)
    try:
        one, other = _term(first, question, ()), _term(second, question, ())
    except _BeyondSolverError as beyond:
        return f"{reason}; {beyond}"
    solver.add(*question.rules, one.value, z3.Not(other.value))
    solver.add(z3.Not(one.failed), z3.Not(other.failed))
    answer = solver.check()
    if answer == z3.unsat:
        return None
    if answer != z3.sat:
        return f"{reason}; the solver gave up"
    return _facts(solver.model(), question)


def _term(tree: Tree, question: _Question, bound: tuple[_Term, ...]) -> _Term:
    question.nodes += 1
    if question.nodes > NODE_LIMIT:
        raise _BeyondSolverError("the quantifiers have too many cases")
    match tree:
        case Constant(value):
            return _Term(_constant(value, question.z3), question.z3.BoolVal(False))
        case QuantifierVariable(depth):
            return bound[depth]
        case MechanismField() | LabelText() | HasLabel():
            return _fact(tree, question)
        case AllOf(terms) | AnyOf(terms):
            present = question.z3.BoolVal(True)
            cases = [(present, _term(term, question, bound)) for term in terms]
            return _decided(cases, question.z3, by=isinstance(tree, AnyOf))
        case Conditional():
            return _choice(tree, question, bound)
        case Membership(element, container):
            return _member(_term(element, question, bound), container, question)
        case SizeOf(AttributeList() | LabelTextList() | Literals() as container):
            return _Term(_length(container, question), question.z3.BoolVal(False))
        case Quantifier():
            return _quantified(tree, question, bound)
        case _:
            return _strict(tree, question, bound)


def _strict(tree: Tree, question: _Question, bound: tuple[_Term, ...]) -> _Term:
    z3 = question.z3
    match tree:
        case Not(operand):
            inner = _term(operand, question, bound)
            return _Term(z3.Not(inner.value), inner.failed)
        case SizeOf(operand):
            inner = _term(operand, question, bound)
            return _Term(z3.Length(inner.value), inner.failed)
        case Comparison(symbol, left, right) | TextTest(symbol, left, right):
            one, other = _term(left, question, bound), _term(right, question, bound)
            failed = z3.Or(one.failed, other.failed)
            return _Term(_compared(symbol, one.value, other.value, z3), failed)
        case Arithmetic(symbol, left, right):
            one, other = _term(left, question, bound), _term(right, question, bound)
            return _calculated(symbol, one, other, z3)
        case _:
            raise _BeyondSolverError("part of it is not known to the solver")


def _compared(symbol: str, left: Any, right: Any, z3: Any) -> Any:
    if symbol in ("==", "!="):
        return (left == right) if symbol == "==" else (left != right)
    if z3.is_bool(left):
        raise _BeyondSolverError("true and false are put in an order")
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


def _calculated(symbol: str, left: _Term, right: _Term, z3: Any) -> _Term:
    one, other = left.value, right.value
    failed = z3.Or(left.failed, right.failed)
    if symbol in ("/", "%"):
        failed = z3.Or(failed, other == 0)
        quotient = z3.If(one >= 0, one / other, -((-one) / other))  # towards zero
        failed = z3.Or(failed, quotient > HIGHEST)
        return _Term(quotient if symbol == "/" else one - quotient * other, failed)
    value = {"+": one + other, "-": one - other, "*": one * other}[symbol]
    return _Term(value, z3.Or(failed, value < LOWEST, value > HIGHEST))


def _choice(tree: Conditional, question: _Question, bound: tuple[_Term, ...]) -> _Term:
    condition, first, second = (
        _term(part, question, bound) for part in (tree.condition, tree.first, tree.second)
    )
    z3 = question.z3
    failed = z3.Or(condition.failed, z3.If(condition.value, first.failed, second.failed))
    return _Term(z3.If(condition.value, first.value, second.value), failed)


def _decided(cases: list[tuple[Any, _Term]], z3: Any, *, by: bool) -> _Term:
    """`||` and `exists` (by true), `&&` and `all` (by false), over the cases that are present."""
    decisive = z3.Or(
        *(
            z3.And(present, z3.Not(term.failed), term.value if by else z3.Not(term.value))
            for present, term in cases
        )
    )
    failed = z3.Or(*(z3.And(present, term.failed) for present, term in cases))
    return _Term(decisive if by else z3.Not(decisive), z3.And(z3.Not(decisive), failed))


def _quantified(tree: Quantifier, question: _Question, bound: tuple[_Term, ...]) -> _Term:
    z3 = question.z3
    cases = [
        (present, _term(tree.body, question, (*bound, _Term(value, z3.BoolVal(False)))))
        for value, present in _elements(tree.over, question)
    ]
    if tree.quantifier != "exists_one":
        return _decided(cases, z3, by=tree.quantifier == "exists")
    hits = z3.Sum([z3.IntVal(0), *(z3.If(z3.And(p, t.value), 1, 0) for p, t in cases)])
    return _Term(hits == 1, z3.Or(*(z3.And(p, t.failed) for p, t in cases)))


def _member(element: _Term, container: Tree, question: _Question) -> _Term:
    z3 = question.z3
    hits = [z3.And(p, element.value == value) for value, p in _elements(container, question)]
    return _Term(z3.Or(*hits), element.failed)


def _length(container: Tree, question: _Question) -> Any:
    z3 = question.z3
    there = [z3.If(present, 1, 0) for _, present in _elements(container, question)]
    return z3.Sum([z3.IntVal(0), *there])


def _elements(container: Tree, question: _Question) -> list[tuple[Any, Any]]:
    z3 = question.z3
    if isinstance(container, Literals):
        return [(_constant(item.value, z3), z3.BoolVal(True)) for item in container.items]
    source = list_key(container)
    return [(_constant(value, z3), held) for value, held in _held(source, question).items()]


def _held(source: str, question: _Question) -> dict[str, Any]:
    domain = possible_texts(source, question.schema)
    if domain is None:
        raise _BeyondSolverError(f"`{source}` can hold any number of texts")
    if source not in question.lists:
        names = {value: question.z3.Bool(f"{source} holds {value}") for value in domain}
        question.lists[source] = names
    return question.lists[source]


def _fact(tree: MechanismField | LabelText | HasLabel, question: _Question) -> _Term:
    z3 = question.z3
    never = z3.BoolVal(False)
    if isinstance(tree, MechanismField):
        return _Term(_text(tree.name, question), never)
    label, source = question.schema.labels[tree.name], f"labels.{tree.name}"
    if label.many:
        return _Term(z3.Or(*_held(source, question).values()), never)
    value = _text(source, question)
    missing = never
    if label.may_be_missing:
        missing = question.missing.setdefault(source, z3.Bool(f"{source} is missing"))
    return _Term(z3.Not(missing), never) if isinstance(tree, HasLabel) else _Term(value, missing)


def _text(source: str, question: _Question) -> Any:
    z3 = question.z3
    if source not in question.texts:
        question.texts[source] = variable = z3.String(source)
        domain = possible_texts(source, question.schema)
        if domain is not None:
            question.rules.append(z3.Or(*(variable == _constant(value, z3) for value in domain)))
    return question.texts[source]


def _constant(value: str | int | float | bool, z3: Any) -> Any:
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, float):
        exact = Fraction(value)
        return z3.Q(exact.numerator, exact.denominator)
    if any(ord(character) > HIGHEST_CHARACTER for character in value):
        raise _BeyondSolverError("it has characters the solver does not know")
    # z3 reads escapes in what it is given: only letters and digits are safe as they are.
    return z3.StringVal(re.sub(r"[^A-Za-z0-9 ]", lambda found: f"\\u{{{ord(found[0]):x}}}", value))


def _facts(model: Any, question: _Question) -> PredicateInput | str:
    known: dict[Key, str | int | bool | None] = {}
    for source, text in question.texts.items():
        value = known[source, None] = _read(model, text)
        if any("\ud800" <= character <= "\udfff" for character in value):
            return "the solver's counter-example is no text"
    for source, missing in question.missing.items():
        if _is_true(model, missing):
            known[source, None] = None
    universes = {source: ListUniverse(tuple(held), ()) for source, held in question.lists.items()}
    for source, held in question.lists.items():
        known.update({(source, value): _is_true(model, there) for value, there in held.items()})
    return complete_input(known, CaseSpace(universes, {}, None), question.schema)


def _is_true(model: Any, term: Any) -> bool:
    return str(model.eval(term)) == "True"


def _read(model: Any, text: Any) -> str:
    written: str = model.eval(text, model_completion=True).as_string()
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), written)
