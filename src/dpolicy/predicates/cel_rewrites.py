"""Rewriting of an expression, so that the CEL type checker can check all of it.

The checker has each label as a typed variable `labels.x`. Two notations would bypass it:
it resolves `has(labels.x)` to the value of the label, and `labels["x"]` has no type. Both are
rewritten without changing their length (`has.labels.x `, ``labels.`x` ``), so all offsets stay
valid. The positions come from the syntax tree, not from a search in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpolicy.predicates.cel_decoder import CelNode, CelSyntax
from dpolicy.predicates.expression_problems import ExpressionProblem, underline_length

_HAS = re.compile(r"\(\s*labels\s*\.\s*(?:[A-Za-z_]\w*|`[^`\n]+`)\s*\)")
_INDEX = re.compile(r"""\[(\s*)(["'])([A-Za-z0-9_./ -]+)\2(\s*)\]""")


def may_need_rewrite(text: str) -> bool:
    """Return False if no rewrite can be needed; the text is then parsed only once."""
    return "has" in text or "[" in text


def rewrite_for_checker(text: str, syntax: CelSyntax) -> tuple[str, tuple[ExpressionProblem, ...]]:
    """Return the rewritten text, of the same length, and the problems with `has`."""
    characters, problems = list(text), []
    for node in _walk(syntax.root):
        offset = syntax.positions.get(node.id, 0)
        if (node.kind, node.name) == ("name", "has"):
            problems.append(_has_as_name_problem(text, offset))
        elif node.kind == "has":
            match = _HAS.match(text, offset)
            if match is None:
                problems.append(_has_argument_problem(text, offset))
            else:
                characters[offset], characters[match.end() - 1] = ".", " "
        elif _is_label_index(node):
            match = _INDEX.match(text, offset)
            if match is not None:
                characters[offset : match.end()] = f".{match[1]}`{match[3]}`{match[4]} "
    return "".join(characters), tuple(problems)


def _has_as_name_problem(text: str, offset: int) -> ExpressionProblem:
    length = underline_length(text, offset)
    return ExpressionProblem(
        "refused", "`has` is not a name", offset, length, "write `has(labels.x)`"
    )


def _has_argument_problem(text: str, offset: int) -> ExpressionProblem:
    start = max(text.rfind("has", 0, offset), 0)
    message = "`has` accepts only one label"
    return ExpressionProblem("refused", message, start, 3, "write `has(labels.x)`")


def _is_label_index(node: CelNode) -> bool:
    if node.kind != "call" or node.name != "_[_]":
        return False
    operand, key = node.children
    return (operand.kind, operand.name) == ("name", "labels") and key.kind == "constant"


def _walk(node: CelNode) -> Iterator[CelNode]:
    yield node
    for child in node.children:
        yield from _walk(child)
