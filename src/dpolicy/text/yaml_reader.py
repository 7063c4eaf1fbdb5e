"""Text → nodes with spans: YAML 1.2, strict, read event by event so that no bomb is ever built.

No aliases, anchors, tags, merge keys, second documents or duplicate keys; a number is what it looks
like (`1e-7` is one, `no` is text, `010` is refused). JSON is YAML here, with JSON's own escapes.
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

#: Two megabytes are some 20,000 attributes; more is a slip or an attack, and takes over a second.
MAX_BYTES = 2_000_000
#: Policies are five levels deep; a nesting bomb is refused as soon as it passes this.
MAX_DEPTH = 32
#: Twenty thousand attributes are some 160,000 values; each takes ten microseconds and 300 bytes.
MAX_NODES = 200_000
#: Exponents past this turn one number into megabytes of digits.
MAX_EXPONENT = 400
#: Digits past this are no number that anybody meant.
MAX_DIGITS = 60

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0\d[\d.eE+-]*", re.ASCII)
_NON_FINITE = re.compile(r"[-+]?\.?(inf|nan|infinity)", re.IGNORECASE)
#: What a number, truth value or non-finite number can begin with.
_MAY_BE_SPECIAL = frozenset("0123456789+-.tfNI")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A text, number, truth value or nothing, as `kind` says; `style` is its quoting, if any."""

    span: Span
    text: str
    kind: str
    style: str | None = None

    @property
    def word(self) -> LocatedText:
        """The text with its place."""
        return LocatedText(self.text, self.span)

    @property
    def number(self) -> Fraction:
        """The exact value; only for `kind == "number"`."""
        return Fraction(Decimal(self.text))


@dataclass(frozen=True, slots=True)
class ListNode:
    """A sequence of nodes."""

    span: Span
    items: tuple[TextNode, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """Entries in the order they were written; keys are distinct."""

    span: Span
    entries: tuple[tuple[ScalarNode, TextNode], ...]

    def get(self, key: str) -> TextNode | None:
        """The value of a key, if it is there."""
        return next((value for name, value in self.entries if name.text == key), None)


TextNode = ScalarNode | ListNode | MapNode


class _Refused(Exception):
    """Reading cannot go on; the reason has been reported."""


def read_nodes(source: Source, report: Report) -> TextNode | None:
    """The one document of a source, or None if it cannot be read (the reason is reported)."""
    start = Span(source, 1, 1, 1, 2)
    if len(source.text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        report("P002", f"the file is larger than {MAX_BYTES:,} bytes", start, "split it into files")
        return None
    if report_hidden_character(source, report):
        return None
    try:
        return _Composer(source, report).document()
    except _Refused:
        return None
    except yaml.YAMLError as error:
        fallback = read_json(source, report)
        if fallback is None:
            report_syntax(source, error, report)
        return fallback


def read_json(source: Source, report: Report) -> TextNode | None:
    """JSON that YAML cannot read (escapes such as `\\/`), or that a program made: every node stands
    for the whole text.
    """
    if source.text.lstrip()[:1] not in ("{", "["):
        return None
    lines = source.text.split("\n")
    span = Span(source, 1, 1, len(lines), len(lines[-1]) + 1)

    def pairs(entries: list[tuple[str, Any]]) -> MapNode:
        seen: set[str] = set()
        for key, _ in entries:
            if key in seen:
                report("P004", f"the key `{key}` stands here twice", span, "remove one of them")
            seen.add(key)
        return MapNode(
            span, tuple((ScalarNode(span, key, "text", '"'), node(v)) for key, v in entries)
        )

    def node(value: Any) -> TextNode:
        match value:
            case MapNode() | ScalarNode():
                return value
            case list():
                return ListNode(span, tuple(node(item) for item in value))
            case str():
                return ScalarNode(span, value, "text", '"')
            case bool():
                return ScalarNode(span, "true" if value else "false", "bool")
            case _:
                return ScalarNode(span, "null", "null")

    def number(text: str) -> ScalarNode:
        return _plain(text, span, report)

    try:
        return node(
            json.loads(
                source.text,
                object_pairs_hook=pairs,
                parse_float=number,
                parse_int=number,
                parse_constant=number,
            )
        )
    except (ValueError, RecursionError):
        return None


def scalar_kind(text: str) -> str:
    """What an unquoted scalar is, by the YAML 1.2 core schema."""
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


def _plain(text: str, span: Span, report: Report) -> ScalarNode:
    """An unquoted scalar; a number that is not what it looks like is reported."""
    kind = scalar_kind(text)
    if kind != "number":
        return ScalarNode(span, text, kind)
    if _LEADING_ZERO.fullmatch(text):
        shown = f"the number `{_cut(text)}` has a leading zero"
        without = re.sub(r"^([-+]?)0+(?=\d)", r"\1", text)
        report("P005", shown, span, f"write `{_cut(without)}`, or quote it if it is text")
        return ScalarNode(span, "0", "invalid")
    return number_node(text, span, report)


def _cut(text: str) -> str:
    """As much of a number as anybody reads."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def number_node(text: str, span: Span, report: Report) -> ScalarNode:
    """Return the node of a number, or report one that is too long to be computed with."""
    mantissa, _, exponent = text.lower().partition("e")
    absurd = (
        len(mantissa) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_EXPONENT
    )
    if absurd:
        shown = f"the number `{_cut(text)}` is absurd"
        limits = f"at most {MAX_DIGITS} digits and an exponent of at most {MAX_EXPONENT}"
        report("P009", shown, span, limits)
        return ScalarNode(span, "0", "invalid")
    return ScalarNode(span, text, "number")


def _events(text: str) -> Iterator[Any]:
    """What `yaml.parse` gives, at half the price."""
    loader = _LOADER(text)
    try:
        following = loader.get_event
        while (event := following()) is not None:
            yield event
    finally:
        loader.dispose()


class _Composer:
    """Builds nodes from the events of one document and stops at the first event it must refuse."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source = source
        self._report = report
        self._events = _events(source.text)
        self._nodes = 0

    def document(self) -> TextNode:
        """The only document; nothing but its end may follow it."""
        root: TextNode | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._refuse("P003", "a second document", event, "keep one document a file")
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, depth=1)
        start = Span(self._source, 1, 1, 1, 2)
        return root if root is not None else ScalarNode(start, "", "null")

    def _node(self, event: Any, depth: int) -> TextNode:
        if depth > MAX_DEPTH:
            self._refuse("P002", f"nesting deeper than {MAX_DEPTH} levels", event, None)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse("P002", f"more than {MAX_NODES:,} values", event, "split it into files")
        plain = self._is_plain(event)
        if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            return (
                self._scalar(event)
                if plain
                else ScalarNode(self._span(event, event), "", "invalid")
            )
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(event, depth)
        return self._map(event, depth)

    def _scalar(self, event: Any) -> ScalarNode:
        span = self._span(event, event)
        if not event.style and event.implicit[0]:
            return _plain(event.value, span, self._report)
        return ScalarNode(span, event.value, "text", event.style)

    def _list(self, start: Any, depth: int) -> ListNode:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return ListNode(self._span(start, event), tuple(items))

    def _map(self, start: Any, depth: int) -> MapNode:
        entries: dict[str, tuple[ScalarNode, TextNode]] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, ScalarNode) or key.kind == "null":
                self._report("P007", "a key must be text", key.span, None)
            elif key.kind == "invalid":
                continue
            elif key.text == "<<" and not key.style:
                self._report("P003", "merge keys are refused", key.span, "write the keys out")
            elif key.text in entries:
                first = entries[key.text][0].span.line
                shown = f"the key `{key.text}` stands here twice (first in line {first})"
                self._report("P004", shown, key.span, "remove one of them")
            else:
                entries[key.text] = (key, value)
        return MapNode(self._span(start, event), tuple(entries.values()))

    def _is_plain(self, event: Any) -> bool:
        """Whether a node says what stands there. One that does not is told, and read over."""
        anchor = None if event.anchor is None else f"{event.anchor}"
        if isinstance(event, yaml.AliasEvent):
            self._not_plain(
                f"the alias `*{anchor}` is refused", event, f"*{anchor}", "write it out"
            )
        elif anchor is not None:
            self._not_plain(f"the anchor `&{anchor}` is refused", event, f"&{anchor}", "remove it")
        elif (tag := event.tag) is not None and tag != "!":
            self._not_plain(f"the tag `{_short(tag)}` is refused", event, _short(tag), "remove it")
            return False
        return not isinstance(event, yaml.AliasEvent)

    def _not_plain(self, message: str, event: Any, mark: str, help_: str) -> None:
        span = self._span(event, event)
        end = min(span.column + len(mark), len(self._source.line(span.line)) + 1)
        self._report("P003", message, Span(*_start(span), span.line, end), help_)

    def _refuse(self, code: str, message: str, event: Any, help_: str | None) -> None:
        self._report(code, message, self._span(event, event), help_)
        raise _Refused

    def _span(self, first: Any, last: Any) -> Span:
        start, end = first.start_mark, last.end_mark
        return Span(self._source, start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def _start(span: Span) -> tuple[Source, int, int]:
    return span.source, span.line, span.column


def _short(tag: str) -> str:
    """A tag as people write it."""
    return tag.replace("tag:yaml.org,2002:", "!!")
