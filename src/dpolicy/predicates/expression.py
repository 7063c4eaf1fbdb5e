"""Turns the text of a predicate into something that says of a mechanism whether a rule covers it.

The text is CEL over `attributes`, `labels`, `mechanism` and `by`. It is parsed and
type-checked by Google's implementation, restricted to a fragment that is cheap to evaluate and
can be reasoned about, and evaluated by closures of our own. An evaluation error is an exception
that denies the request, never "no match" (threat T7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dpolicy.errors import PredicateFailed
from dpolicy.predicates import engine
from dpolicy.predicates.checked import Syntax
from dpolicy.predicates.evaluation import compiled
from dpolicy.predicates.kleene import UNBOUND, Open, World, judged
from dpolicy.predicates.mistakes import Mistake as Mistake
from dpolicy.predicates.mistakes import explained
from dpolicy.predicates.spelling import may_need_respelling, respelled
from dpolicy.predicates.tree import (
    Attributes,
    Constant,
    Literals,
    Member,
    Quantified,
    Tree,
    Variable,
    children,
)
from dpolicy.predicates.typed import Reading, typed
from dpolicy.predicates.vocabulary import strangers
from dpolicy.releases.labels import Facts, Schema

#: Longer than any predicate a person maintains; keeps bombs small.
BYTE_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Always:
    """`when: always`: every mechanism."""


@dataclass(frozen=True, slots=True)
class UsesAny:
    """Every mechanism that uses at least one of these attributes."""

    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expression:
    """A predicate that was read from text; two are equal if their texts are."""

    text: str
    tree: Tree = field(compare=False, repr=False)
    evaluate: Callable[[Facts], bool] = field(compare=False, repr=False)


Predicate = Always | UsesAny | Expression


def matches(predicate: Predicate, facts: Facts) -> bool:
    """Whether the mechanism lies in the scope; raises `PredicateFailed` if that has no answer."""
    if isinstance(predicate, UsesAny):
        return not predicate.attributes.isdisjoint(facts.attributes)
    if isinstance(predicate, Always):
        return True
    try:
        return predicate.evaluate(facts)
    except PredicateFailed as failure:
        raise type(failure)(f"`{predicate.text}` has no answer: {failure}") from None


def read_predicate(text: str, schema: Schema) -> Expression | tuple[Mistake, ...]:
    """The predicate, or everything that is wrong with it."""
    if (unreadable := size_mistake(text)) is not None:
        return (unreadable,)
    checkable, refused = text, tuple[Mistake, ...]()
    if may_need_respelling(text):
        parsed = engine.parse(text)
        if not isinstance(parsed, Syntax):
            return _first_causes(explained(complaint, text, schema) for complaint in parsed)
        checkable, refused = respelled(text, parsed)
    syntax = engine.check(checkable, _variables(schema))
    if not isinstance(syntax, Syntax):
        return _first_causes([*refused, *(explained(each, text, schema) for each in syntax)])
    reading = Reading(text, syntax, schema, [*refused])
    tree = typed(reading)
    mistakes = [*reading.mistakes, *strangers(tree, text, schema)]
    return _in_order(mistakes) if mistakes else Expression(text, tree, compiled(tree))


def reads_attribute(predicate: Predicate, attribute: str) -> bool:
    """Whether using `attribute` may change the answer; when in doubt, yes."""
    match predicate:
        case Always():
            return False
        case UsesAny(attributes):
            return attribute in attributes
        case Expression():
            return _reads(predicate.tree, attribute, ())


def size_mistake(text: str) -> Mistake | None:
    """Why `text` is not even parsed, if so."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return Mistake("syntax", "half a character", error.start, 1)
    if size > BYTE_LIMIT:
        message = f"the expression has {size} bytes, at most {BYTE_LIMIT} are allowed"
        return Mistake("too-large", message, 0, len(text), "split it into several policies")
    if "\0" in text:  # the library would stop reading there
        return Mistake("syntax", "unexpected zero byte", text.index("\0"), 1)
    return None


def _variables(schema: Schema) -> dict[str, str]:
    """Every name an expression can read, with its type, as the checker wants them."""
    variables = {"attributes": "list(string)", "mechanism": "string", "by": "string"}
    for label in schema.labels.values():
        variables[f"labels.{label.name}"] = "list(string)" if label.many else "string"
        variables[f"has.labels.{label.name}"] = "bool"  # see spelling.py
    return variables


def _first_causes(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """A mistake with a known remedy (`=` for `==`) causes the syntax mistakes after it."""
    ordered = _in_order(mistakes)
    causes = ordered[0].kind == "syntax" and ordered[0].help is not None
    return ordered[:1] if causes else ordered


def _in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    return tuple(sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.offset))


def _reads(tree: Tree, attribute: str, scope: tuple[Tree, ...]) -> bool:
    match tree:
        case Attributes():
            return True  # any use that is not one of those below
        case Member(element, Attributes()):
            constants = _possible(element, scope)
            return constants is None or attribute in constants or _reads(element, attribute, scope)
        case Quantified(_, _, over, body):
            if isinstance(over, Attributes) and _decides(tree, attribute, scope):
                return True
            return _reads(body, attribute, (*scope, over))
        case _:
            return any(_reads(child, attribute, scope) for child in children(tree))


def _possible(element: Tree, scope: tuple[Tree, ...]) -> tuple[object, ...] | None:
    """The values `element` can take, if they stand in the text."""
    match element:
        case Constant(value):
            return (value,)
        case Variable(depth):
            over = scope[depth]
            return tuple(item.value for item in over.items) if isinstance(over, Literals) else None
        case _:
            return None


def _decides(tree: Quantified, attribute: str, scope: tuple[Tree, ...]) -> bool:
    """Whether one more value, `attribute`, may change what the quantifier says."""
    nothing_known = World({}, {}, {})
    bound: tuple[str | Open, ...] = (*(UNBOUND for _ in scope), attribute)
    without_effect = tree.quantifier == "all"  # `all` ignores what its body is true for
    return judged(tree.body, nothing_known, bound) is not without_effect
