"""Shapes: readers of nodes that return typed values and describe themselves as JSON Schema.

A shape reports the errors of a node and returns `INVALID`. The reader then continues, so that one
pass reports all errors of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final, Protocol

from dpolicy.text.did_you_mean import closest_name, suggest
from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    Report,
    ScalarNode,
    Span,
    TextNode,
    scalar_kind,
)


class _Invalid:
    """Result of a shape for a node whose error it reported."""

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = _Invalid()

#: ASCII only, so that different names never look identical (SECURITY.md, item 5). `×`, `@` and
#: brackets are reserved for rule names.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,98}[A-Za-z0-9_]|[A-Za-z0-9_]")

#: Names, e-mail addresses and subjects of identity providers, which have at most 255 characters.
IDENTITY = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:/@|+=~'% -]{0,253}[A-Za-z0-9_=-])?")


class Shape(Protocol):
    """Reader of one kind of node."""

    @property
    def title(self) -> str:
        """Noun phrase for messages, such as `a number`."""

    def read(self, node: TextNode, report: Report) -> Any:
        """Return the value of a node, or report its errors and return `INVALID`."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values."""


def report_wrong_type(node: TextNode, title: str, report: Report, help_: str | None = None) -> Any:
    """Report a node of the wrong type, unless it was already reported; return `INVALID`."""
    if not (isinstance(node, ScalarNode) and node.kind == "invalid"):
        report("P007", f"expected {title}, got {_describe(node)}", node.span, help_)
    return INVALID


def report_too_many(count: int, most: int | None, node: TextNode, report: Report) -> bool:
    """Report a list or map with more than `most` entries; return whether it has."""
    if most is None or count <= most:
        return False
    report("P002", f"{count:,} entries are too many", node.span, f"use at most {most:,} entries")
    return True


def _describe(node: TextNode) -> str:
    match node:
        case ListNode():
            return "a list"
        case MapNode():
            return "a map"
        case ScalarNode(kind="null"):
            return "nothing"
        case ScalarNode(kind="bool", text=text):
            return f"`{text}`"
        case ScalarNode(kind="number" | "non-finite", text=text):
            return f"the number `{text}`"
        case ScalarNode(text=text):
            return f"the text `{text[:40]}`"


@dataclass(frozen=True, slots=True)
class TextShape:
    """Shape of any text, on one or more lines."""

    title: str = "text"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "text":
            return node.located_text
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class NameShape:
    """Shape of a name: ASCII letters, digits and some punctuation (`NAME`)."""

    title: str = "a name"
    pattern: ClassVar[re.Pattern[str]] = NAME
    valid: ClassVar[str] = "a valid name"
    help: ClassVar[str] = (
        "use at most 100 ASCII letters, digits and _, with spaces and - . : / between them"
    )

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or node.kind not in ("text", "number", "bool"):
            return report_wrong_type(node, self.title, report)
        if not self.pattern.fullmatch(node.text):
            report("P011", f"`{node.text[:40]}` is not {self.valid}", node.span, self.help)
            return INVALID
        return node.located_text

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"], "pattern": f"^({self.pattern.pattern})$"}


@dataclass(frozen=True, slots=True)
class IdentityShape(NameShape):
    """Shape of the identity of a person or a program, such as an e-mail address (`IDENTITY`)."""

    title: str = "an identity"
    pattern: ClassVar[re.Pattern[str]] = IDENTITY
    valid: ClassVar[str] = "a valid identity"
    help: ClassVar[str] = (
        "use at most 255 ASCII letters, digits and _, with spaces and . : / @ | + = ~ ' % - "
        "between them, such as an e-mail address"
    )


@dataclass(frozen=True, slots=True)
class ChoiceShape:
    """Shape of a choice between keywords."""

    words: tuple[str, ...]
    title: str = "a choice"

    def read(self, node: TextNode, report: Report) -> Any:
        if (
            isinstance(node, ScalarNode)
            and node.text in self.words
            and node.kind in ("text", "bool")
        ):
            return node.located_text
        if isinstance(node, ScalarNode) and node.kind == "text":
            message = f"`{node.text[:40]}` is not {self.title}"
            report("P012", message, node.span, suggest(node.text, self.words))
            return INVALID
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class NumberShape:
    """Shape of an exact number within limits. The title must name the limits."""

    title: str = "a number"
    least: Fraction | None = None
    most: Fraction | None = None
    above: Fraction | None = None
    below: Fraction | None = None
    whole: bool = False
    help: str | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or node.kind not in ("number", "non-finite"):
            return report_wrong_type(node, self.title, report, _suggest_number(node))
        if node.kind == "non-finite" or not self._allows(node.number):
            report("P009", f"`{node.text}` is not {self.title}", node.span, self.help)
            return INVALID
        return int(node.number) if self.whole else node.number

    def _allows(self, value: Fraction) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (not self.whole or value.denominator == 1)
        )

    def schema(self) -> dict[str, Any]:
        limits = {
            "minimum": self.least,
            "maximum": self.most,
            "exclusiveMinimum": self.above,
            "exclusiveMaximum": self.below,
        }
        stated = {key: _to_json_number(value) for key, value in limits.items() if value is not None}
        return {"type": "integer" if self.whole else "number", **stated}


def _suggest_number(node: TextNode) -> str | None:
    """Return help for a text that is almost a number."""
    if not isinstance(node, ScalarNode) or node.kind != "text":
        return None
    if scalar_kind(node.text) == "number":
        return "remove the quotes"
    plain = node.text.replace("_", "").replace(" ", "").replace(",", ".")
    return f"write `{plain}`" if plain and scalar_kind(plain) == "number" else None


def _to_json_number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


@dataclass(frozen=True, slots=True)
class BooleanShape:
    """Shape of `true` or `false`."""

    title: str = "`true` or `false`"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "bool":
            return node.text == "true"
        text = node.text.lower() if isinstance(node, ScalarNode) and node.kind == "text" else ""
        value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text, text)
        help_ = f"write `{value}`" if value in ("true", "false") else None
        return report_wrong_type(node, self.title, report, help_)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class ListShape:
    """Shape of a list whose items have one shape; its value is a tuple."""

    shape: Shape
    title: str = "a list"
    least: int = 0
    most: int | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode):
            help_ = None
            if isinstance(node, ScalarNode) and node.kind == "text" and "," not in node.text:
                help_ = f"write `[{node.text[:40]}]`"
            return report_wrong_type(node, self.title, report, help_)
        if report_too_many(len(node.items), self.most, node, report):
            return INVALID
        if len(node.items) < self.least:
            message = f"expected {self.title} with at least one entry, got an empty list"
            report("P007", message, node.span, None)
            return INVALID
        values = [self.shape.read(item, report) for item in node.items]
        return tuple(value for value in values if value is not INVALID)

    def schema(self) -> dict[str, Any]:
        minimum = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.shape.schema(), **minimum}


@dataclass(frozen=True, slots=True)
class KeywordOrShape:
    """Shape of a keyword with a fixed value, or of another shape."""

    words: Mapping[str, Any]
    shape: Shape

    @property
    def title(self) -> str:
        return self.shape.title

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.text in self.words:
            return self.words[node.text]
        return self.shape.read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.words)}, self.shape.schema()]}


@dataclass(frozen=True, slots=True)
class MapShape:
    """Shape of a map whose values have one shape; its value is a dict with located keys.

    An invalid entry gets the value `fallback`, if there is one, so that references to its name are
    not reported as unknown.
    """

    shape: Shape
    title: str = "a map"
    key: Shape = field(default_factory=NameShape)
    fallback: Any = INVALID
    most: int | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        if report_too_many(len(node.entries), self.most, node, report):
            return INVALID
        pairs = [(self.key.read(k, report), self.shape.read(v, report)) for k, v in node.entries]
        kept = [(k, self.fallback if v is INVALID else v) for k, v in pairs if k is not INVALID]
        return {k: v for k, v in kept if v is not INVALID}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.shape.schema()}


@dataclass(frozen=True, slots=True)
class RecordField:
    """Key of a record; `default` is the value of a missing key."""

    shape: Shape
    doc: str = ""
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Shape of a map with fixed keys. `build` gets its values and span if all keys are valid.

    `rescue` has replacements for invalid and missing values, so that later stages can check the
    other values. The text is rejected nevertheless.
    """

    title: str
    fields: Mapping[str, RecordField]
    build: Callable[[dict[str, Any], Span], Any]
    rescue: Mapping[str, Callable[[Span], Any]] | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null" and not self._required_keys():
            node = MapNode(node.span, ())
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        values = {key: f.default for key, f in self.fields.items()}
        entries = [(self._find_field(key, node, report), key, child) for key, child in node.entries]
        read = {
            name: self.fields[name].shape.read(child, report) for name, _, child in entries if name
        }
        missing = [key for key in self._required_keys() if key not in read]
        if missing:
            listed = " and ".join(f"`{key}`" for key in missing)
            report("P008", f"{self.title} needs {listed}", first_line_span(node), None)
        values |= read
        invalid = [*missing, *(key for key, value in read.items() if value is INVALID)]
        if not invalid and all(name == key.text for name, key, _ in entries):
            return self.build(values, node.span)
        return self._build_with_replacements(values, invalid, node.span)

    def _find_field(self, key: ScalarNode, node: MapNode, report: Report) -> str | None:
        """Return the field of a key. Report a misspelt key and return the most similar field."""
        if key.text in self.fields:
            return key.text
        message = f"{self.title} has no key `{key.text[:40]}`"
        report("P006", message, key.span, suggest(key.text, self.fields))
        close = closest_name(key.text, self.fields)
        return close if close is not None and node.get(close) is None else None

    def _build_with_replacements(
        self, values: dict[str, Any], invalid: list[str], span: Span
    ) -> Any:
        if self.rescue is None or not self.rescue.keys() >= set(invalid):
            return INVALID
        replacements = {key: self.rescue[key](span) for key in invalid}
        return self.build({**values, **replacements}, span)

    def _required_keys(self) -> list[str]:
        return [key for key, f in self.fields.items() if f.required]

    def schema(self) -> dict[str, Any]:
        properties = {
            key: {**f.shape.schema(), **({"description": f.doc} if f.doc else {})}
            for key, f in self.fields.items()
        }
        required = {"required": self._required_keys()} if self._required_keys() else {}
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **required,
        }


def first_line_span(node: MapNode) -> Span:
    """Return the span of the first key of a map, or of an empty map."""
    return node.entries[0][0].span if node.entries else node.span
