"""Strict YAML 1.2 reader that returns nodes with spans.

It rejects aliases, anchors, tags, merge keys, second documents and duplicate keys. Scalars have
one reading: `1e-7` is a number, `no` is text, and `010` is rejected. JSON is read too, with its
escapes. The reader consumes parser events and stops at the first event past a limit, so a YAML
bomb is never built in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import yaml

from dpolicy.text.spans import LocatedText as LocatedText
from dpolicy.text.spans import Report as Report
from dpolicy.text.spans import Source as Source
from dpolicy.text.spans import Span as Span
from dpolicy.text.syntax_errors import report_hidden_character, report_syntax

#: Two megabytes hold about 20,000 attributes; reading more takes over a second.
MAX_BYTES = 2_000_000
#: Policies are five levels deep; the reader stops at the first deeper node.
MAX_DEPTH = 32
#: Twenty thousand attributes have about 160,000 values; each takes ten microseconds and 300 bytes.
MAX_NODES = 200_000
#: A larger exponent would expand one number to megabytes of digits.
MAX_EXPONENT = 400
#: Maximum length of the mantissa of a number.
MAX_DIGITS = 60

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0\d[\d.eE+-]*", re.ASCII)
_NON_FINITE = re.compile(r"[-+]?\.?(inf|nan|infinity)", re.IGNORECASE)
#: First characters of numbers, booleans and non-finite numbers.
_MAY_BE_SPECIAL = frozenset("0123456789+-.tfNI")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """Scalar. `kind` is `text`, `number`, `bool`, `null`, `non-finite` or `invalid` (already
    reported); `style` is the quote character, or None for a plain scalar.
    """

    span: Span
    text: str
    kind: str
    style: str | None = None

    @property
    def located_text(self) -> LocatedText:
        """Text with its span."""
        return LocatedText(self.text, self.span)

    @property
    def number(self) -> Fraction:
        """Exact value; defined only for `kind == "number"`."""
        return Fraction(Decimal(self.text))


@dataclass(frozen=True, slots=True)
class ListNode:
    """Sequence of nodes."""

    span: Span
    items: tuple[TextNode, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """Mapping: entries in the order of the text, with distinct keys."""

    span: Span
    entries: tuple[tuple[ScalarNode, TextNode], ...]

    def get(self, key: str) -> TextNode | None:
        """Return the value of a key, or None."""
        return next((value for name, value in self.entries if name.text == key), None)


TextNode = ScalarNode | ListNode | MapNode


class _ReadingStopped(Exception):
    """Signal that the reader stopped after it reported the reason."""


def read_nodes(source: Source, report: Report) -> TextNode | None:
    """Read the single document of a source. Return None after reporting why it is unreadable."""
    start = Span(source, 1, 1, 1, 2)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES:,} bytes"
        report("P002", message, start, "split it into several files")
        return None
    if report_hidden_character(source, report):
        return None
    try:
        return _Composer(source, report).compose_document()
    except _ReadingStopped:
        return None
    except yaml.YAMLError as error:
        fallback = read_json(source, report)
        if fallback is None:
            report_syntax(source, error, report)
        return fallback


def read_json(source: Source, report: Report) -> TextNode | None:
    """Read JSON, including escapes that YAML does not have (`\\/`). Return None if it is not JSON.

    Every node has the span of the whole text. Duplicate keys are reported.
    """
    if source.text.lstrip()[:1] not in ("{", "["):
        return None
    lines = source.text.split("\n")
    span = Span(source, 1, 1, len(lines), len(lines[-1]) + 1)

    def build_map(entries: list[tuple[str, Any]]) -> MapNode:
        keys: set[str] = set()
        for key, _ in entries:
            if key in keys:
                report("P004", f"duplicate key `{key}`", span, "remove one of them")
            keys.add(key)
        return MapNode(
            span, tuple((ScalarNode(span, key, "text", '"'), build_node(v)) for key, v in entries)
        )

    def build_node(value: Any) -> TextNode:
        match value:
            case MapNode() | ScalarNode():
                return value
            case list():
                return ListNode(span, tuple(build_node(item) for item in value))
            case str():
                return ScalarNode(span, value, "text", '"')
            case bool():
                return ScalarNode(span, "true" if value else "false", "bool")
            case _:
                return ScalarNode(span, "null", "null")

    def build_number(text: str) -> ScalarNode:
        return _read_plain_scalar(text, span, report)

    try:
        return build_node(
            json.loads(
                source.text,
                object_pairs_hook=build_map,
                parse_float=build_number,
                parse_int=build_number,
                parse_constant=build_number,
            )
        )
    except (ValueError, RecursionError):
        return None


def scalar_kind(text: str) -> str:
    """Return the kind of an unquoted scalar by the YAML 1.2 core schema."""
    if text in ("", "~", "null"):
        return "null"
    if text[0] not in _MAY_BE_SPECIAL:
        return "text"
    if text in ("true", "false"):
        return "bool"
    if _NUMBER.fullmatch(text):
        return "number"
    if _NON_FINITE.fullmatch(text) and (text[0] in ".-+" or text in ("NaN", "Infinity")):
        return "non-finite"
    return "text"


def _read_plain_scalar(text: str, span: Span, report: Report) -> ScalarNode:
    """Read an unquoted scalar; report a number with a leading zero or past the limits."""
    kind = scalar_kind(text)
    if kind != "number":
        return ScalarNode(span, text, kind)
    if _LEADING_ZERO.fullmatch(text):
        message = f"the number `{_shorten(text)}` has a leading zero"
        without = re.sub(r"^([-+]?)0+(?=\d)", r"\1", text)
        report("P005", message, span, f"write `{_shorten(without)}`, or quote it if it is text")
        return ScalarNode(span, "0", "invalid")
    return number_node(text, span, report)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def number_node(text: str, span: Span, report: Report) -> ScalarNode:
    """Return the node of a number; report one with too many digits or too large an exponent."""
    mantissa, _, exponent = text.lower().partition("e")
    out_of_range = (
        len(mantissa) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_EXPONENT
    )
    if out_of_range:
        message = f"the number `{_shorten(text)}` has too many digits or too large an exponent"
        limits = f"use at most {MAX_DIGITS} digits and an exponent of at most {MAX_EXPONENT}"
        report("P009", message, span, limits)
        return ScalarNode(span, "0", "invalid")
    return ScalarNode(span, text, "number")


def _parse_events(text: str) -> Iterator[Any]:
    """Yield the events of `yaml.parse`, in half the time."""
    loader = _LOADER(text)
    try:
        next_event = loader.get_event
        while (event := next_event()) is not None:
            yield event
    finally:
        loader.dispose()


class _Composer:
    """Builder of nodes from the events of one document; it stops at the first rejected event."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source = source
        self._report = report
        self._events = _parse_events(source.text)
        self._nodes = 0

    def compose_document(self) -> TextNode:
        """Return the root node; reject a second document."""
        root: TextNode | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    message = "the file contains a second document"
                    self._stop("P003", message, event, "write one document per file")
            elif isinstance(event, yaml.NodeEvent):
                root = self._compose_node(event, depth=1)
        start = Span(self._source, 1, 1, 1, 2)
        return root if root is not None else ScalarNode(start, "", "null")

    def _compose_node(self, event: Any, depth: int) -> TextNode:
        if depth > MAX_DEPTH:
            message = f"the text is nested more than {MAX_DEPTH} levels deep"
            self._stop("P002", message, event, None)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"the file has more than {MAX_NODES:,} values"
            self._stop("P002", message, event, "split it into several files")
        readable = self._check_features(event)
        if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            if readable:
                return self._compose_scalar(event)
            return ScalarNode(self._span(event, event), "", "invalid")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._compose_list(event, depth)
        return self._compose_map(event, depth)

    def _compose_scalar(self, event: Any) -> ScalarNode:
        span = self._span(event, event)
        if not event.style and event.implicit[0]:
            return _read_plain_scalar(event.value, span, self._report)
        return ScalarNode(span, event.value, "text", event.style)

    def _compose_list(self, start: Any, depth: int) -> ListNode:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._compose_node(event, depth + 1))
        return ListNode(self._span(start, event), tuple(items))

    def _compose_map(self, start: Any, depth: int) -> MapNode:
        entries: dict[str, tuple[ScalarNode, TextNode]] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._compose_node(event, depth + 1)
            value = self._compose_node(next(self._events), depth + 1)
            if not isinstance(key, ScalarNode) or key.kind == "null":
                self._report("P007", "a key must be text", key.span, None)
            elif key.kind == "invalid":
                continue
            elif key.text == "<<" and not key.style:
                self._report("P003", "merge keys are not allowed", key.span, "write the keys out")
            elif key.text in entries:
                first = entries[key.text][0].span.line
                message = f"duplicate key `{key.text}` (first in line {first})"
                self._report("P004", message, key.span, "remove one of them")
            else:
                entries[key.text] = (key, value)
        return MapNode(self._span(start, event), tuple(entries.values()))

    def _check_features(self, event: Any) -> bool:
        """Report an alias, anchor or tag. Return whether the node has a readable value.

        A node with an anchor is still read, so that its own errors are reported too.
        """
        anchor = None if event.anchor is None else f"{event.anchor}"
        if isinstance(event, yaml.AliasEvent):
            self._report_mark("alias", f"*{anchor}", event, "write the value out")
            return False
        if anchor is not None:
            self._report_mark("anchor", f"&{anchor}", event, "remove it")
        elif event.tag is not None and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._report_mark("tag", tag, event, "remove it")
            return False
        return True

    def _report_mark(self, feature: str, mark: str, event: Any, help_: str) -> None:
        """Report a YAML feature that is not allowed; `mark` is its text in the source."""
        span = self._span(event, event)
        end = min(span.column + len(mark), len(self._source.line(span.line)) + 1)
        mark_span = Span(span.source, span.line, span.column, span.line, end)
        self._report("P003", f"the {feature} `{mark}` is not allowed", mark_span, help_)

    def _stop(self, code: str, message: str, event: Any, help_: str | None) -> None:
        self._report(code, message, self._span(event, event), help_)
        raise _ReadingStopped

    def _span(self, first: Any, last: Any) -> Span:
        start, end = first.start_mark, last.end_mark
        return Span(self._source, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
