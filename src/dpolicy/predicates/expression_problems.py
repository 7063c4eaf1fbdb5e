"""Problems of an expression: message, position in the text and suggested fix."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpolicy.predicates.cel import CelError
from dpolicy.releases.release_schema import ReleaseSchema
from dpolicy.text.did_you_mean import suggest, suggest_closest

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`[^`]*`")
_LITERAL = re.compile(r"""[rR]?("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_SELECTOR = re.compile(r"""\.\s*(?:\w+|`[^`]*`)|\[\s*(?:"[^"]*"|'[^']*')\s*\]""")
_NAME_BEFORE = re.compile(r"[A-Za-z_][\w.]*\s*$")
_FUNCTION_BEFORE = re.compile(r"[A-Za-z_]\w*\s*$")
_OPERATOR = re.compile(r"[=!<>]=|&&|\|\|")
_NUMBER = re.compile(r"-?[0-9][0-9.eE]*")
#: CEL operators for the operators of other languages.
_CEL_OPERATORS = {"and": "&&", "or": "||", "not": "!", "=": "==", "&": "&&", "|": "||"}
_SYMBOLS = {"!_": "!", "-_": "-", "_?_:_": "? :", "_[_]": "[ ]", "@in": "in"}
_FUNCTIONS = ("size", "startsWith", "endsWith", "contains", "has", "exists")
_TYPE_NAMES = {
    "string": "text",
    "int": "a whole number",
    "double": "a decimal number",
    "bool": "a bool",
}


@dataclass(frozen=True, slots=True)
class ExpressionProblem:
    """Problem of an expression, located in its text."""

    kind: str  # syntax | type | unknown-label | unknown-attribute | unknown-value | refused | …
    message: str
    offset: int  # in code points, from 0
    length: int  # at least 1
    help: str | None = None


def underline_length(text: str, offset: int) -> int:
    """Return the length of the literal, name, number or operator at an offset, at least 1."""
    for pattern in (_LITERAL, _WORD, _NUMBER, _OPERATOR):
        match = pattern.match(text, offset)
        if match is not None:
            return max(1, match.end() - offset)
    return 1


def underline_span(text: str, offset: int) -> tuple[int, int]:
    """Return the start and length of the text to underline for a node.

    The parser locates a call at its bracket; the name of the function is underlined instead.
    """
    if text[offset : offset + 1] == "(":
        function = _FUNCTION_BEFORE.search(text, 0, offset)
        if function is not None:
            return function.start(), len(function[0].rstrip())
    return offset, underline_length(text, offset)


def describe_type(type_name: str) -> str:
    """Return a CEL type in plain words, for messages."""
    if type_name.startswith("list("):
        return "a list of text" if type_name == "list(string)" else "a list"
    return _TYPE_NAMES.get(type_name, type_name)


def operator_symbol(function: str) -> str:
    """Return the symbol of an operator, from its function name in the syntax tree."""
    return _SYMBOLS.get(function, function.strip("_"))


def problem_from_cel_error(error: CelError, text: str, schema: ReleaseSchema) -> ExpressionProblem:
    """Translate an error of the CEL library into a problem with a suggested fix."""
    message = error.message
    if "recursion" in message or "exceeded" in message.lower() or "size limit" in message:
        return ExpressionProblem(
            "too-large", "the expression is nested too deeply", 0, underline_length(text, 0)
        )
    offset = min(max(error.offset or 0, 0), max(len(text) - 1, 0))
    if match := re.match(r"undeclared reference to '(.*)'", message):
        return _unknown_name_problem(match[1], text, offset, schema)
    if match := re.match(r"found no matching overload for '(.*)' applied to '(.*)'", message):
        return _operand_problem(match[1], match[2], offset)
    if message.startswith("Syntax error: "):
        return _syntax_problem(message.removeprefix("Syntax error: "), text, offset)
    kind = "type" if message.startswith("expression of type") else "syntax"
    help_ = "write `has(labels.x)`" if message.startswith("has()") else None
    return ExpressionProblem(
        kind, _format_message(message), offset, underline_length(text, offset), help_
    )


def _unknown_name_problem(
    name: str, text: str, offset: int, schema: ReleaseSchema
) -> ExpressionProblem:
    if text[offset] == "(":  # the library locates an unknown function at its bracket
        start = max(text.rfind(name, 0, offset), 0)
        help_ = suggest_closest(name, _FUNCTIONS)
        return ExpressionProblem("type", f"unknown function `{name}`", start, len(name), help_)
    start, length = _name_span(text, offset)
    head, _, tail = name.removeprefix("has.").partition(".")
    if head == "labels" and tail:
        help_ = suggest(tail, schema.labels)
        return ExpressionProblem("unknown-label", f"unknown label `{tail}`", start, length, help_)
    help_ = _suggest_name(name, tail, schema)
    return ExpressionProblem("type", f"unknown name `{name}`", start, length, help_)


def _name_span(text: str, offset: int) -> tuple[int, int]:
    """Return the start and length of a name; the library locates it at its last dot or bracket."""
    selector = _SELECTOR.match(text, offset)
    if selector is None:
        return offset, underline_length(text, offset)
    before = _NAME_BEFORE.search(text, 0, offset)
    start = before.start() if before else offset
    return start, selector.end() - start


def _suggest_name(name: str, tail: str, schema: ReleaseSchema) -> str | None:
    if name == "labels":
        return 'name one label, as in `labels.x` or `labels["x"]`'
    if name in schema.labels:
        return f"write `labels.{name}`"
    if tail and tail in schema.labels:
        return f"write `labels.{tail}`"
    if name in schema.attributes:
        return f'write it as text: `"{name}"`'
    return suggest_closest(name, ("attributes", "labels", "mechanism", "by"))


def _operand_problem(function: str, arguments: str, offset: int) -> ExpressionProblem:
    types = arguments.strip("()").replace("list(string", "list(string)").split(", ")
    types = [type_name.replace("))", ")") for type_name in types]
    symbol = operator_symbol(function)
    message = f"`{symbol}` does not apply to {' and '.join(map(describe_type, types))}"
    help_ = None
    if types[0] == "list(string)" and function in ("_==_", "_!=_") and "string" in types:
        help_ = "use `in`: a list can contain several values"
    elif "int" in types and "double" in types:
        help_ = "use whole numbers only, or decimal numbers only, as in `3.0`"
    length = 1 if function == "_?_:_" else len(symbol)
    return ExpressionProblem("type", message, offset, length, help_)


def _syntax_problem(message: str, text: str, offset: int) -> ExpressionProblem:
    word = _WORD.match(text, offset)
    token = word[0] if word else text[offset : offset + 1]
    if "'<EOF>'" in message and "expecting" in message:
        return ExpressionProblem("syntax", "the expression is incomplete", offset, 1)
    if missing := re.match(r"missing '(.+)' at", message):
        return ExpressionProblem("syntax", f"missing `{missing[1]}`", offset, 1)
    operator = _CEL_OPERATORS.get(token)
    help_ = f"write `{operator}`" if operator else None
    return ExpressionProblem("syntax", f"unexpected `{token}`", offset, max(1, len(token)), help_)


def _format_message(message: str) -> str:
    message = re.sub(r"'([^']*)'", r"`\1`", message)
    return message[:1].lower() + message[1:]
