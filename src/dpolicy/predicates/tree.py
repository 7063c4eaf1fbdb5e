"""The typed tree a predicate is turned into: only what can be evaluated and reasoned about.

`&&` and `||` are kept flat, since both are associative and commutative even on errors, and a
policy with forty attributes should not become a tower. List literals hold constants only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, and where it stands in the text (for messages only)."""

    value: str | int | float | bool
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Literals:
    """`["a", "b"]`: a list of constants of one type."""

    items: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class AttributeList:
    """The attributes of the mechanism."""


@dataclass(frozen=True, slots=True)
class MechanismField:
    """`mechanism` or `by`: a text every mechanism has."""

    name: str


@dataclass(frozen=True, slots=True)
class LabelText:
    """The value of a single-valued label; reading it fails where the label is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class LabelTextList:
    """The values of a `many` label."""

    name: str


@dataclass(frozen=True, slots=True)
class HasLabel:
    """`has(labels.x)`."""

    name: str


@dataclass(frozen=True, slots=True)
class QuantifierVariable:
    """The variable of the quantifier that stands `depth` quantifiers from the outside."""

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
    """The length of a text (in code points) or of a list."""

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
    """The parts of a node, from left to right."""
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
    """Every node, the root first."""
    yield tree
    for child in children(tree):
        yield from walk(child)
