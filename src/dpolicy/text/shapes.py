"""Nodes → typed values, by shapes that also describe themselves as JSON Schema.

A shape reads one kind of node. It reports what is wrong and answers `INVALID`, so that the rest of
the text is still read and every mistake is found in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Protocol

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
    """What a shape answers for a node that it has reported."""

    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = _Invalid()

#: Plain ASCII, so that two names which look alike are alike (threat T25); `×`, `@` and brackets
#: are kept for rule names.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,98}[A-Za-z0-9_]|[A-Za-z0-9_]")


class Shape(Protocol):
    """Reads a node into a value, or reports and answers `INVALID`."""

    @property
    def title(self) -> str:
        """What is expected, in words."""

    def read(self, node: TextNode, report: Report) -> Any:
        """The value of a node."""

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""


def report_wrong_type(node: TextNode, title: str, report: Report, help_: str | None = None) -> Any:
    """Report that a node is not what was expected, unless it has been reported already."""
    if not (isinstance(node, ScalarNode) and node.kind == "invalid"):
        report("P007", f"expected {title}, found {_found(node)}", node.span, help_)
    return INVALID


def report_too_many(count: int, most: int | None, node: TextNode, report: Report) -> bool:
    """Report a list or map that is longer than any that is meant."""
    if most is None or count <= most:
        return False
    report("P002", f"{count:,} entries are too many", node.span, f"at most {most:,} are read here")
    return True


def _found(node: TextNode) -> str:
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
    """Any text on one or more lines."""

    title: str = "text"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "text":
            return node.word
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class NameShape:
    """A name: ASCII letters, digits and a few signs."""

    title: str = "a name"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or node.kind not in ("text", "number", "bool"):
            return report_wrong_type(node, self.title, report)
        if not NAME.fullmatch(node.text):
            shown = f"`{node.text[:40]}` cannot be used as a name"
            allowed = (
                "use at most 100 ASCII letters, digits and _, with spaces and - . : / between them"
            )
            report("P011", shown, node.span, allowed)
            return INVALID
        return node.word

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"], "pattern": f"^({NAME.pattern})$"}


@dataclass(frozen=True, slots=True)
class ChoiceShape:
    """One of a few words."""

    words: tuple[str, ...]
    title: str = "a choice"

    def read(self, node: TextNode, report: Report) -> Any:
        if (
            isinstance(node, ScalarNode)
            and node.text in self.words
            and node.kind in ("text", "bool")
        ):
            return node.word
        if isinstance(node, ScalarNode) and node.kind == "text":
            shown = f"`{node.text[:40]}` is not {self.title}"
            report("P012", shown, node.span, suggest(node.text, self.words))
            return INVALID
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class NumberShape:
    """An exact number within limits; the limits are named where the shape is used."""

    title: str = "a number"
    least: Fraction | None = None
    most: Fraction | None = None
    above: Fraction | None = None
    below: Fraction | None = None
    whole: bool = False
    help: str | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode) or node.kind not in ("number", "non-finite"):
            return report_wrong_type(node, self.title, report, _as_number(node))
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
        said = {key: _plain(value) for key, value in limits.items() if value is not None}
        return {"type": "integer" if self.whole else "number", **said}


def _as_number(node: TextNode) -> str | None:
    """How to write a text that is nearly a number."""
    if not isinstance(node, ScalarNode) or node.kind != "text":
        return None
    if scalar_kind(node.text) == "number":
        return "remove the quotes"
    plain = node.text.replace("_", "").replace(" ", "").replace(",", ".")
    return f"write `{plain}`" if plain and scalar_kind(plain) == "number" else None


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


@dataclass(frozen=True, slots=True)
class BooleanShape:
    """true or false."""

    title: str = "`true` or `false`"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "bool":
            return node.text == "true"
        text = node.text.lower() if isinstance(node, ScalarNode) and node.kind == "text" else ""
        word = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text, text)
        help_ = f"write `{word}`" if word in ("true", "false") else None
        return report_wrong_type(node, self.title, report, help_)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list of one shape, as a tuple."""

    shape: Shape
    title: str = "a list"
    least: int = 0
    most: int | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ListNode):
            word = isinstance(node, ScalarNode) and node.kind == "text" and "," not in node.text
            help_ = f"write `[{node.text[:40]}]`" if word and isinstance(node, ScalarNode) else None
            return report_wrong_type(node, self.title, report, help_)
        if report_too_many(len(node.items), self.most, node, report):
            return INVALID
        if len(node.items) < self.least:
            report("P007", f"expected {self.title} with an entry, found none", node.span, None)
            return INVALID
        values = [self.shape.read(item, report) for item in node.items]
        return tuple(value for value in values if value is not INVALID)

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.shape.schema(), **least}


@dataclass(frozen=True, slots=True)
class KeywordOrShape:
    """One of a few words that stand for values, or another shape."""

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
    """A map from names to one shape, as a dict whose keys remember their place.

    An entry that is not valid is reported and kept as `fallback`, where there is one, so that
    names which refer to it are not reported as unknown.
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
    """One key of a record; `default` stands in where it is left out."""

    shape: Shape
    doc: str = ""
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class RecordShape:
    """A map with known keys, handed to `build` with its span once every key is valid.

    Where there is a `rescue`, it says what stands in for a value that is wrong or missing, so that
    the other keys are still checked; the text is rejected all the same.
    """

    title: str
    fields: Mapping[str, RecordField]
    build: Callable[[dict[str, Any], Span], Any]
    rescue: Mapping[str, Callable[[Span], Any]] | None = None

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null" and not self._required():
            node = MapNode(node.span, ())
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        values = {key: f.default for key, f in self.fields.items()}
        meant = [(self._meant(key, node, report), key, child) for key, child in node.entries]
        read = {
            name: self.fields[name].shape.read(child, report) for name, _, child in meant if name
        }
        missing = [key for key in self._required() if key not in read]
        if missing:
            listed = " and ".join(f"`{key}`" for key in missing)
            report("P008", f"{self.title} needs {listed}", first_line_span(node), None)
        values |= read
        wrong = [*missing, *(key for key, value in read.items() if value is INVALID)]
        if not wrong and all(name == key.text for name, key, _ in meant):
            return self.build(values, node.span)
        return self._rescued(values, wrong, node.span)

    def _meant(self, key: ScalarNode, node: MapNode, report: Report) -> str | None:
        """The field a key names. A misspelt one is told, and read as the one that it is like."""
        if key.text in self.fields:
            return key.text
        shown = f"{self.title} has no key `{key.text[:40]}`"
        report("P006", shown, key.span, suggest(key.text, self.fields))
        close = closest_name(key.text, self.fields)
        return close if close is not None and node.get(close) is None else None

    def _rescued(self, values: dict[str, Any], wrong: list[str], span: Span) -> Any:
        if self.rescue is None or not self.rescue.keys() >= set(wrong):
            return INVALID
        stand_ins = {key: self.rescue[key](span) for key in wrong}
        return self.build({**values, **stand_ins}, span)

    def _required(self) -> list[str]:
        return [key for key, f in self.fields.items() if f.required]

    def schema(self) -> dict[str, Any]:
        properties = {
            key: {**f.shape.schema(), **({"description": f.doc} if f.doc else {})}
            for key, f in self.fields.items()
        }
        required = {"required": self._required()} if self._required() else {}
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **required,
        }


def first_line_span(node: MapNode) -> Span:
    """The first line of a map: enough to point at it."""
    return node.entries[0][0].span if node.entries else node.span
