"""Builder of the typed tree of `tree.py` from a type-checked CEL syntax tree.

It reports every node that the closures cannot evaluate as a problem. It also rejects every node
whose type the checker left open (`dyn`), so that no comparison fails on types when a request is
decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpolicy.predicates.cel_decoder import CelNode, CelSyntax
from dpolicy.predicates.expression_problems import (
    ExpressionProblem,
    describe_type,
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

#: Maximum depth of an expression; it bounds every recursion over a tree.
MAX_DEPTH = 32
#: Maximum nesting of quantifiers. Each level multiplies the work by the length of a list.
MAX_QUANTIFIER_DEPTH = 3
#: Names that a variable of a quantifier must not hide.
RESERVED_NAMES = frozenset({"attributes", "labels", "mechanism", "by", "has"})

_SCALARS = frozenset({"bool", "int", "double", "string"})
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_ARITHMETIC = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_TEXT_TESTS = frozenset({"startsWith", "endsWith", "contains"})
_TEXT_HELP = "compare text with `==`, `in`, `startsWith`, `endsWith` or `contains`"
_LIST_HELP = "use `in`, `all`, `exists`, `exists_one` or `size`: lists have no order"
_PLACEHOLDER = Constant(False)  # replaces a rejected node, so that its siblings are checked


@dataclass(frozen=True, slots=True)
class TreeBuilder:
    """Input of a build, and the problems reported so far."""

    text: str
    syntax: CelSyntax
    schema: ReleaseSchema
    problems: list[ExpressionProblem] = field(default_factory=list)


def build_tree(builder: TreeBuilder) -> Tree:
    """Build the typed tree. The result is valid only if `builder.problems` stays empty."""
    type_name = _node_type(builder, builder.syntax.root)
    if type_name != "bool":
        message = f"a predicate must be true or false, not {describe_type(type_name)}"
        builder.problems.append(ExpressionProblem("type", message, 0, max(1, len(builder.text))))
    return _build_node(builder, builder.syntax.root, (), 1)


def _build_node(builder: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int) -> Tree:
    if depth > MAX_DEPTH:
        message = f"the expression is nested more than {MAX_DEPTH} levels deep"
        return _reject(builder, node, message, kind="too-large")
    match node.kind:
        case "constant" if node.value in (math.inf, -math.inf):
            return _reject(builder, node, "the number is too large", kind="type")
        case "constant":
            return Constant(_constant_value(node), builder.syntax.positions.get(node.id, 0))
        case "name":
            return _build_name(builder, node, scope)
        case "call":
            return _build_call(builder, node, scope, depth)
        case "list":
            return _build_list(builder, node)
        case "comprehension":
            return _build_quantifier(builder, node, scope, depth)
        case _:
            return _reject(builder, node, "this type of value is not available in predicates")


def _constant_value(node: CelNode) -> str | int | float | bool:
    return False if node.value is None else node.value


def _build_name(builder: TreeBuilder, node: CelNode, scope: tuple[str, ...]) -> Tree:
    if node.name in scope:  # the innermost of two variables with one name hides the other
        if _node_type(builder, node) not in _SCALARS:
            return _reject(builder, node, f"the type of `{node.name}` is not known")
        return QuantifierVariable(len(scope) - 1 - scope[::-1].index(node.name))
    if node.name == "attributes":
        return AttributeList()
    if node.name in ("mechanism", "by"):
        return MechanismField(node.name)
    if node.name.startswith("has.labels."):
        return HasLabel(node.name.removeprefix("has.labels."))
    label = builder.schema.labels.get(node.name.removeprefix("labels."))
    if node.name.startswith("labels.") and label is not None:
        return LabelTextList(label.name) if label.many else LabelText(label.name)
    return _reject(builder, node, f"`{node.name}` is not available in predicates")


def _build_call(builder: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int) -> Tree:
    function = node.name
    if function in ("_&&_", "_||_"):
        terms = tuple(
            _build_node(builder, term, scope, depth + 1) for term in _flatten(node, function)
        )
        return AllOf(terms) if function == "_&&_" else AnyOf(terms)
    refusal = _rejection(function, [_node_type(builder, child) for child in node.children])
    if refusal is not None:
        return _reject(builder, node, *refusal)
    parts = [_build_node(builder, child, scope, depth + 1) for child in node.children]
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


def _flatten(node: CelNode, function: str) -> list[CelNode]:
    """Return the terms of a chain: `a`, `b`, `c` for `a && (b && c)`. Chains can be long, so this
    function does not recurse.
    """
    terms, stack = [], [node]
    while stack:
        top = stack.pop()
        if top.kind == "call" and top.name == function:
            stack.extend(reversed(top.children))
        else:
            terms.append(top)
    return terms


def _rejection(function: str, types: list[str]) -> tuple[str, str | None] | None:
    """Return why a call with these operand types is rejected, with help; None if it is allowed."""
    symbol = operator_symbol(function)
    on_lists = any(type_name.startswith("list") for type_name in types)
    unavailable = f"`{symbol}` is not available for values of these types", None
    if function in ("!_", "size") or function in _TEXT_TESTS:
        return None if types[0] in ("bool", "string") or on_lists else unavailable
    if function == "@in":
        return None if types[0] in _SCALARS and on_lists else unavailable
    if function in _COMPARISONS or function == "_?_:_":
        if on_lists:
            return f"`{symbol}` is not allowed on lists", _LIST_HELP
        return None if set(types) <= _SCALARS and len(set(types[-2:])) == 1 else unavailable
    if function in _ARITHMETIC or function == "-_":
        if set(types) == {"int"}:
            return None
        if "string" in types:
            return f"`{symbol}` is not allowed on text", None
        if on_lists:
            return f"`{symbol}` is not allowed on lists", None
        return f"`{symbol}` is allowed only on whole numbers", None
    if function == "_[_]":
        return "indexing a list is not allowed", _LIST_HELP
    help_ = _TEXT_HELP if function == "matches" else None
    return f"`{function}` is not available in predicates", help_


def _build_list(builder: TreeBuilder, node: CelNode) -> Tree:
    items = [
        Constant(_constant_value(child), builder.syntax.positions.get(child.id, 0))
        for child in node.children
        if child.kind == "constant" and child.value not in (math.inf, -math.inf)
    ]
    if len(items) < len(node.children):
        return _reject(builder, node, "a list can contain only constants")
    if len({type(item.value) for item in items}) > 1:
        return _reject(builder, node, "a list can contain values of one type only", kind="type")
    return Literals(tuple(items))


def _build_quantifier(
    builder: TreeBuilder, node: CelNode, scope: tuple[str, ...], depth: int
) -> Tree:
    if len(scope) >= MAX_QUANTIFIER_DEPTH:
        message = f"quantifiers are nested more than {MAX_QUANTIFIER_DEPTH} levels deep"
        return _reject(builder, node, message, kind="too-large")
    if node.name in RESERVED_NAMES:
        message = f"the variable `{node.name}` hides a predefined name"
        return _reject(builder, node, message, "rename the variable")
    over, start, _, step, _ = node.children
    macro = _match_macro(start, step)
    if macro is None:
        name = _macro_name(builder, node)
        return _reject(builder, node, f"`{name}` is not allowed", "use `all` or `exists`")
    quantifier, body_node = macro
    values = _build_node(builder, over, scope, depth + 1)
    body = _build_node(builder, body_node, (*scope, node.name), depth + 1)
    return Quantifier(quantifier, len(scope), values, body)


def _match_macro(start: CelNode, step: CelNode) -> tuple[str, CelNode] | None:
    """Return the name and the body of the expanded macro, or None if it is not supported."""
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


def _macro_name(builder: TreeBuilder, node: CelNode) -> str:
    before = builder.text[: builder.syntax.positions.get(node.id, 0)].rstrip()
    return "map" if before.endswith("map") else "filter" if before.endswith("filter") else "loop"


def _node_type(builder: TreeBuilder, node: CelNode) -> str:
    return builder.syntax.types.get(node.id, "dyn")


def _reject(
    builder: TreeBuilder,
    node: CelNode,
    message: str,
    help_: str | None = None,
    *,
    kind: str = "refused",
) -> Tree:
    """Add a problem at a node, and return a placeholder for the node."""
    offset = min(builder.syntax.positions.get(node.id, 0), max(len(builder.text) - 1, 0))
    start, length = underline_span(builder.text, offset)
    builder.problems.append(ExpressionProblem(kind, message, start, length, help_))
    return _PLACEHOLDER
