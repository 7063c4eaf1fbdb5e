"""Turns what is wrong with an expression into one message each, with its place and a remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpolicy.predicates.cel import CelError
from dpolicy.releases.release_schema import ReleaseSchema

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`[^`]*`")
_LITERAL = re.compile(r"""[rR]?("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_SELECTOR = re.compile(r"""\.\s*(?:\w+|`[^`]*`)|\[\s*(?:"[^"]*"|'[^']*')\s*\]""")
_BEFORE = re.compile(r"[A-Za-z_][\w.]*\s*$")
_CALLED = re.compile(r"[A-Za-z_]\w*\s*$")
_OPERATOR = re.compile(r"[=!<>]=|&&|\|\|")
_NUMBER = re.compile(r"-?[0-9][0-9.eE]*")
_INSTEAD = {"and": "&&", "or": "||", "not": "!", "=": "==", "&": "&&", "|": "||"}
_SYMBOLS = {"!_": "!", "-_": "-", "_?_:_": "? :", "_[_]": "[ ]", "@in": "in"}
_WORDS = {"string": "text", "int": "a whole number", "double": "a decimal number", "bool": "a bool"}


@dataclass(frozen=True, slots=True)
class ExpressionProblem:
    """One thing wrong with an expression."""

    kind: str  # syntax | type | unknown-label | unknown-attribute | unknown-value | refused | …
    message: str
    offset: int  # in code points, from 0
    length: int  # at least 1
    help: str | None = None


def expression_suggestion(wrong: str, known_names: Iterable[str]) -> str | None:
    """A help that names what is spelled most like `wrong`, if anything is."""
    near = difflib.get_close_matches(wrong, sorted(known_names), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


def underline_length(text: str, offset: int) -> int:
    """How much to underline at `offset`: a literal, a name, a number, or one character."""
    for pattern in (_LITERAL, _WORD, _NUMBER, _OPERATOR):
        if found := pattern.match(text, offset):
            return max(1, found.end() - offset)
    return 1


def underline_span(text: str, offset: int) -> tuple[int, int]:
    """What to underline for a node; the parser puts calls at their bracket, people at the name."""
    if text[offset : offset + 1] == "(" and (called := _CALLED.search(text, 0, offset)):
        return called.start(), len(called[0].rstrip())
    return offset, underline_length(text, offset)


def kind_in_words(kind: str) -> str:
    """A type as messages name it."""
    if kind.startswith("list("):
        return "a list of text" if kind == "list(string)" else "a list"
    return _WORDS.get(kind, kind)


def operator_symbol(function: str) -> str:
    """An operator as people write it, from the name it has in the syntax tree."""
    return _SYMBOLS.get(function, function.strip("_"))


def problem_from_cel_error(
    complaint: CelError, text: str, schema: ReleaseSchema
) -> ExpressionProblem:
    """What the library said, in our words."""
    message = complaint.message
    if "recursion" in message or "exceeded" in message.lower() or "size limit" in message:
        return ExpressionProblem(
            "too-large", "the expression is nested too deeply", 0, underline_length(text, 0)
        )
    offset = min(max(complaint.offset or 0, 0), max(len(text) - 1, 0))
    if found := re.match(r"undeclared reference to '(.*)'", message):
        return _undeclared(found[1], text, offset, schema)
    if found := re.match(r"found no matching overload for '(.*)' applied to '(.*)'", message):
        return _overload(found[1], found[2], text, offset)
    if message.startswith("Syntax error: "):
        return _syntax(message.removeprefix("Syntax error: "), text, offset)
    kind = "type" if message.startswith("expression of type") else "syntax"
    return ExpressionProblem(
        kind, _lowered(message), offset, underline_length(text, offset), _remedy(message)
    )


def _undeclared(name: str, text: str, offset: int, schema: ReleaseSchema) -> ExpressionProblem:
    if text[offset] == "(":  # the library points at the bracket of an unknown function
        start = max(text.rfind(name, 0, offset), 0)
        help_ = expression_suggestion(
            name, ("size", "startsWith", "endsWith", "contains", "has", "exists")
        )
        return ExpressionProblem("type", f"unknown function `{name}`", start, len(name), help_)
    start, length = _whole_name(text, offset)
    head, _, rest = name.removeprefix("has.").partition(".")
    if head == "labels" and rest:
        help_ = expression_suggestion(rest, schema.labels) or _listed(schema)
        return ExpressionProblem("unknown-label", f"unknown label `{rest}`", start, length, help_)
    remedy = _remedy_for_name(name, rest, schema)
    return ExpressionProblem("type", f"unknown name `{name}`", start, length, remedy)


def _whole_name(text: str, offset: int) -> tuple[int, int]:
    """The library points at the last dot or bracket of a name: where it starts, and its length."""
    after = _SELECTOR.match(text, offset)
    if after is None:
        return offset, underline_length(text, offset)
    before = _BEFORE.search(text, 0, offset)
    start = before.start() if before else offset
    return start, after.end() - start


def _listed(schema: ReleaseSchema) -> str | None:
    known = ", ".join(f"`{name}`" for name in sorted(schema.labels))
    return f"the labels are {known}" if known and len(schema.labels) <= 8 else None


def _remedy_for_name(name: str, rest: str, schema: ReleaseSchema) -> str | None:
    if name == "labels":
        return 'name one label, as in `labels.x` or `labels["x"]`'
    if name in schema.labels:
        return f"write `labels.{name}`"
    if rest and rest in schema.labels:
        return f"write `labels.{rest}`"
    if name in schema.attributes:
        return f'write it as text: `"{name}"`'
    return expression_suggestion(name, ("attributes", "labels", "mechanism", "by"))


def _overload(function: str, arguments: str, text: str, offset: int) -> ExpressionProblem:
    kinds = arguments.strip("()").replace("list(string", "list(string)").split(", ")
    kinds = [kind.replace("))", ")") for kind in kinds]
    message = (
        f"`{operator_symbol(function)}` does not apply to {' and '.join(map(kind_in_words, kinds))}"
    )
    help_ = None
    if kinds[0] == "list(string)" and function in ("_==_", "_!=_") and "string" in kinds:
        help_ = "write `in`: a list can hold several values"
    elif "int" in kinds and "double" in kinds:
        help_ = "use whole numbers only, or decimal numbers only, as in `3.0`"
    return ExpressionProblem(
        "type", message, offset, len(operator_symbol(function)) if function != "_?_:_" else 1, help_
    )


def _syntax(message: str, text: str, offset: int) -> ExpressionProblem:
    word = _WORD.match(text, offset)
    found = word[0] if word else text[offset : offset + 1]
    if "'<EOF>'" in message and "expecting" in message:
        return ExpressionProblem("syntax", "the expression ends too early", offset, 1)
    if missing := re.match(r"missing '(.+)' at", message):
        return ExpressionProblem("syntax", f"missing `{missing[1]}`", offset, 1)
    instead = _INSTEAD.get(found)
    help_ = f"write `{instead}`" if instead else None
    return ExpressionProblem("syntax", f"unexpected `{found}`", offset, max(1, len(found)), help_)


def _lowered(message: str) -> str:
    message = re.sub(r"'([^']*)'", r"`\1`", message)
    return message[:1].lower() + message[1:]


def _remedy(message: str) -> str | None:
    return "write `has(labels.x)`" if message.startswith("has()") else None
