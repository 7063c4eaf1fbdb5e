"""Turns an expression as people write it into one the type checker can check completely.

The checker knows each label as a typed variable `labels.x`. Two spellings escape it:
`has(labels.x)` is resolved to the label's value, and `labels["x"]` has no type. Both are respelled
character for character (`has.labels.x `, ``labels.`x` ``), so every offset stays true; the tree,
not a search in the text, says where they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpolicy.predicates.cel_decoder import CelNode, CelSyntax
from dpolicy.predicates.expression_problems import ExpressionProblem, underline_length

_HAS = re.compile(r"\(\s*labels\s*\.\s*(?:[A-Za-z_]\w*|`[^`\n]+`)\s*\)")
_INDEX = re.compile(r"""\[(\s*)(["'])([A-Za-z0-9_./ -]+)\2(\s*)\]""")


def may_need_rewrite(text: str) -> bool:
    """Most expressions do not, and are spared being parsed twice."""
    return "has" in text or "[" in text


def rewrite_for_checker(text: str, syntax: CelSyntax) -> tuple[str, tuple[ExpressionProblem, ...]]:
    """The text to check, as long as the one given, and what can be refused already."""
    letters, mistakes = list(text), []
    for node in _nodes(syntax.root):
        at = syntax.positions.get(node.id, 0)
        if (node.kind, node.name) == ("name", "has"):
            mistakes.append(_no_name(text, at))
        elif node.kind == "has":
            if (found := _HAS.match(text, at)) is None:
                mistakes.append(_unclear_has(text, at))
            else:
                letters[at], letters[found.end() - 1] = ".", " "
        elif _is_index(node) and (found := _INDEX.match(text, at)) is not None:
            letters[at : found.end()] = f".{found[1]}`{found[3]}`{found[4]} "
    return "".join(letters), tuple(mistakes)


def _no_name(text: str, at: int) -> ExpressionProblem:
    return ExpressionProblem(
        "refused", "`has` is not a name", at, underline_length(text, at), "write `has(labels.x)`"
    )


def _unclear_has(text: str, at: int) -> ExpressionProblem:
    start = max(text.rfind("has", 0, at), 0)
    return ExpressionProblem(
        "refused", "`has` asks for one label only", start, 3, "write `has(labels.x)`, nothing else"
    )


def _is_index(node: CelNode) -> bool:
    if node.kind != "call" or node.name != "_[_]":
        return False
    operand, key = node.children
    return (operand.kind, operand.name) == ("name", "labels") and key.kind == "constant"


def _nodes(node: CelNode) -> Iterator[CelNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)
