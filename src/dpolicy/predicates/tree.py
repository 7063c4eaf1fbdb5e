"""Typed tree of a predicate. It has only nodes that can be evaluated and analysed.

`&&` and `||` are flat, because both are associative and commutative even on errors, and a policy
with forty attributes must not become a deep tree. List literals contain constants only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Constant:
    """Literal; its offset in the text is used only in messages."""

    value: str | int | float | bool
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Literals:
    """List of constants of one type: `["a", "b"]`."""

    items: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class AttributeList:
    """Attributes of the mechanism."""


@dataclass(frozen=True, slots=True)
class MechanismField:
    """`mechanism` or `by`, a text that every mechanism has."""

    name: str


@dataclass(frozen=True, slots=True)
class LabelText:
    """Value of a single-valued label; evaluation fails if the label is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class LabelTextList:
    """Values of a `many` label."""

    name: str


@dataclass(frozen=True, slots=True)
class HasLabel:
    """`has(labels.x)`."""

    name: str


@dataclass(frozen=True, slots=True)
class QuantifierVariable:
    """Variable of a quantifier; the outermost quantifier has depth 0."""

    depth: int


@dataclass(frozen=True, slots=True)
class Not:
    """`!a`."""

    operand: Tree


@dataclass(frozen=True, slots=True)
class AllOf:
    """`a && b && …`."""

    terms: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`a || b || …`."""

    terms: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`a ? b : c`."""

    condition: Tree
    first: Tree
    second: Tree


@dataclass(frozen=True, slots=True)
class Comparison:
    """`==`, `!=`, `<`, `<=`, `>` or `>=` of two scalars of one type."""

    operator: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Membership:
    """`element in container`."""

    element: Tree
    container: Tree


@dataclass(frozen=True, slots=True)
class SizeOf:
    """Length of a text (in code points) or of a list."""

    operand: Tree


@dataclass(frozen=True, slots=True)
class TextTest:
    """`startsWith`, `endsWith` or `contains`."""

    function: str
    operand: Tree
    argument: Tree


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+`, `-`, `*`, `/` or `%` of two whole numbers of 64 bits."""

    operator: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`all`, `exists` or `exists_one` over a list."""

    quantifier: str
    depth: int  # of its variable
    over: Tree
    body: Tree


Tree = (
    Constant
    | Literals
    | AttributeList
    | MechanismField
    | LabelText
    | LabelTextList
    | HasLabel
    | QuantifierVariable
    | Not
    | AllOf
    | AnyOf
    | Conditional
    | Comparison
    | Membership
    | SizeOf
    | TextTest
    | Arithmetic
    | Quantifier
)


def children(tree: Tree) -> tuple[Tree, ...]:
    """Return the operands of a node, from left to right."""
    match tree:
        case Literals(items):
            return items
        case Not(operand) | SizeOf(operand):
            return (operand,)
        case AllOf(terms) | AnyOf(terms):
            return terms
        case Conditional(condition, first, second):
            return (condition, first, second)
        case (
            Comparison(_, left, right)
            | Arithmetic(_, left, right)
            | Membership(left, right)
            | TextTest(_, left, right)
            | Quantifier(_, _, left, right)
        ):
            return (left, right)
        case _:
            return ()


def walk(tree: Tree) -> Iterator[Tree]:
    """Yield all nodes, the root first."""
    yield tree
    for child in children(tree):
        yield from walk(child)
