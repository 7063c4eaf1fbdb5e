"""Turns a type-checked syntax tree into the typed tree of `tree.py`, or says what is refused.

Nothing is accepted that the closures cannot evaluate: a node is either known here or a mistake.
Everything whose type the checker left open (`dyn`) is refused, so that no comparison can fail on
types while a request is decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpolicy.predicates.cel_decoder import CelNode, CelSyntax
from dpolicy.predicates.expression_problems import (
    ExpressionProblem,
    kind_in_words,
    operator_symbol,
    underline_span,
)
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
from dpolicy.releases.release_schema import ReleaseSchema

#: Deeper than anything a person writes; keeps every recursion over a tree shallow.
DEPTH_LIMIT = 32
#: Each level multiplies the work by the length of a list; three already compare triples.
NESTING_LIMIT = 3
#: Were one of these the variable of a quantifier, it would be unclear what a name stands for.
RESERVED = frozenset({"attributes", "labels", "mechanism", "by", "has"})

_SCALARS = frozenset({"bool", "int", "double", "string"})
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_ARITHMETIC = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_TEXT_TESTS = frozenset({"startsWith", "endsWith", "contains"})
_ON_TEXT = "compare text with `==`, `in`, `startsWith`, `endsWith` or `contains`"
_ON_LISTS = "use `in`, `all`, `exists`, `exists_one` or `size`: the order of a list means nothing"
_NOTHING = Constant(False)  # stands where a mistake was, so that its neighbours are still read


@dataclass(frozen=True, slots=True)
class TreeBuilder:
    """What is read, and the mistakes found so far."""

    text: str
    syntax: CelSyntax
    schema: ReleaseSchema
    mistakes: list[ExpressionProblem] = field(default_factory=list)


def build_tree(reading: TreeBuilder) -> Tree:
    """The typed tree; to be used only if `reading.mistakes` stays empty."""
    kind = _kind(reading, reading.syntax.root)
    if kind != "bool":
        message = f"a predicate is true or false, this is {kind_in_words(kind)}"
        reading.mistakes.append(ExpressionProblem("type", message, 0, max(1, len(reading.text))))
    return _tree(reading, reading.syntax.root, (), 1)


def _tree(reading: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int) -> Tree:
    if depth > DEPTH_LIMIT:
        message = f"the expression is nested more than {DEPTH_LIMIT} deep"
        return _mistake(reading, node, message, kind="too-large")
    match node.kind:
        case "constant" if node.value in (math.inf, -math.inf):
            return _mistake(reading, node, "the number is too large", kind="type")
        case "constant":
            return Constant(_scalar(node), reading.syntax.positions.get(node.id, 0))
        case "name":
            return _name(reading, node, scope)
        case "call":
            return _call(reading, node, scope, depth)
        case "list":
            return _literals(reading, node)
        case "comprehension":
            return _quantified(reading, node, scope, depth)
        case _:
            return _mistake(reading, node, "this kind of value is not available in predicates")


def _scalar(node: CelNode) -> str | int | float | bool:
    return False if node.value is None else node.value


def _name(reading: TreeBuilder, node: CelNode, scope: tuple[str, ...]) -> Tree:
    if node.name in scope:  # the innermost of two variables with one name hides the other
        if _kind(reading, node) not in _SCALARS:
            return _mistake(reading, node, f"the type of `{node.name}` is not clear")
        return QuantifierVariable(len(scope) - 1 - scope[::-1].index(node.name))
    if node.name == "attributes":
        return AttributeList()
    if node.name in ("mechanism", "by"):
        return MechanismField(node.name)
    if node.name.startswith("has.labels."):
        return HasLabel(node.name.removeprefix("has.labels."))
    label = reading.schema.labels.get(node.name.removeprefix("labels."))
    if node.name.startswith("labels.") and label is not None:
        return LabelTextList(label.name) if label.many else LabelText(label.name)
    return _mistake(reading, node, f"`{node.name}` is not available in predicates")


def _call(reading: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int) -> Tree:
    function = node.name
    if function in ("_&&_", "_||_"):
        terms = tuple(_tree(reading, term, scope, depth + 1) for term in _flat(node, function))
        return AllOf(terms) if function == "_&&_" else AnyOf(terms)
    refusal = _refusal(function, [_kind(reading, child) for child in node.children])
    if refusal is not None:
        return _mistake(reading, node, *refusal)
    parts = [_tree(reading, child, scope, depth + 1) for child in node.children]
    if function in _COMPARISONS:
        return Comparison(operator_symbol(function), parts[0], parts[1])
    if function in _ARITHMETIC:
        return Arithmetic(operator_symbol(function), parts[0], parts[1])
    if function in _TEXT_TESTS:
        return TextTest(function, parts[0], parts[1])
    if function == "@in":
        return Membership(parts[0], parts[1])
    if function == "_?_:_":
        return Conditional(parts[0], parts[1], parts[2])
    if function == "!_":
        return Not(parts[0])
    return SizeOf(parts[0]) if function == "size" else Arithmetic("-", Constant(0), parts[0])


def _flat(node: CelNode, function: str) -> list[CelNode]:
    """`a && (b && c)` as `a`, `b`, `c`; by a stack, since chains can be long."""
    terms, stack = [], [node]
    while stack:
        top = stack.pop()
        if top.kind == "call" and top.name == function:
            stack.extend(reversed(top.children))
        else:
            terms.append(top)
    return terms


def _refusal(function: str, kinds: list[str]) -> tuple[str, str | None] | None:
    """Why the typed call cannot be evaluated here, and what to write instead."""
    written = operator_symbol(function)
    on_lists = any(kind.startswith("list") for kind in kinds)
    unclear = f"`{written}` is not available for values of these types", None
    if function in ("!_", "size") or function in _TEXT_TESTS:
        known = kinds[0] in ("bool", "string") or on_lists
        return None if known else unclear
    if function == "@in":
        return None if kinds[0] in _SCALARS and on_lists else unclear
    if function in _COMPARISONS or function == "_?_:_":
        if on_lists:
            return f"`{written}` on lists is refused", _ON_LISTS
        return None if set(kinds) <= _SCALARS and len(set(kinds[-2:])) == 1 else unclear
    if function in _ARITHMETIC or function == "-_":
        if set(kinds) == {"int"}:
            return None
        on = "text" if "string" in kinds else "lists" if on_lists else "anything but whole numbers"
        return f"`{written}` on {on} is refused", None
    if function == "_[_]":
        return "taking one value out of a list is refused", _ON_LISTS
    help_ = _ON_TEXT if function == "matches" else None
    return f"`{function}` is not available in predicates", help_


def _literals(reading: TreeBuilder, node: CelNode) -> Tree:
    items = [
        Constant(_scalar(child), reading.syntax.positions.get(child.id, 0))
        for child in node.children
        if child.kind == "constant" and child.value not in (math.inf, -math.inf)
    ]
    if len(items) < len(node.children):
        return _mistake(reading, node, "a list may hold constants only")
    if len({type(item.value) for item in items}) > 1:
        return _mistake(reading, node, "a list may hold values of one type only", kind="type")
    return Literals(tuple(items))


def _quantified(reading: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int) -> Tree:
    if len(scope) >= NESTING_LIMIT:
        message = f"quantifiers are nested more than {NESTING_LIMIT} deep"
        return _mistake(reading, node, message, kind="too-large")
    if node.name in RESERVED:
        message = f"the variable `{node.name}` would hide a name predicates need"
        return _mistake(reading, node, message, "call the variable something else")
    over, start, _, step, _ = node.children
    found = _quantifier(start, step)
    if found is None:
        written = _macro(reading, node)
        return _mistake(reading, node, f"`{written}` is refused", "use `all` or `exists`")
    ranged = _tree(reading, over, scope, depth + 1)
    body = _tree(reading, found[1], (*scope, node.name), depth + 1)
    return Quantifier(found[0], len(scope), ranged, body)


def _quantifier(start: CelNode, step: CelNode) -> tuple[str, CelNode] | None:
    """Which macro was expanded, and the body the user wrote (None: none that is supported)."""
    if step.kind != "call" or start.kind != "constant":
        return None
    first, second = step.children[:2]
    if step.name == "_&&_" and start.value is True and first.name == "@result":
        return "all", second
    if step.name == "_||_" and start.value is False and first.name == "@result":
        return "exists", second
    counts = (second.kind, second.name) == ("call", "_+_") and second.children[0].name == "@result"
    if step.name == "_?_:_" and start.name == "int" and counts:
        return "exists_one", first
    return None


def _macro(reading: TreeBuilder, node: CelNode) -> str:
    before = reading.text[: reading.syntax.positions.get(node.id, 0)].rstrip()
    return "map" if before.endswith("map") else "filter" if before.endswith("filter") else "loop"


def _kind(reading: TreeBuilder, node: CelNode) -> str:
    return reading.syntax.types.get(node.id, "dyn")


def _mistake(
    reading: TreeBuilder,
    node: CelNode,
    message: str,
    help_: str | None = None,
    *,
    kind: str = "refused",
) -> Tree:
    at = min(reading.syntax.positions.get(node.id, 0), max(len(reading.text) - 1, 0))
    reading.mistakes.append(
        ExpressionProblem(kind, message, *underline_span(reading.text, at), help_)
    )
    return _NOTHING
