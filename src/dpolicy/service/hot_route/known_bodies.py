"""Known bodies: contents of requests that the server parsed before, by their bytes.

A pipeline sends the same content again under new ids. If the id is the first or the last member of
a body, and the bytes around it were parsed before without an error, then the body is the same
release under another id. Ids are compared as plain ASCII names, which need no parsing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Largest number of contents, and the largest body that is kept.
MAX_CONTENTS, MAX_CONTENT_BYTES = 1_024, 4_096

_ID = rb'"([A-Za-z0-9](?:[A-Za-z0-9._:-]{0,98}[A-Za-z0-9])?)"'
_FIRST = re.compile(rb'\{\s*"release"\s*:\s*' + _ID)
_LAST = re.compile(rb',\s*"release"\s*:\s*' + _ID + rb"\s*\}\s*\Z")
#: Number of bytes at the end of a body in which its last member is looked for.
_TAIL_BYTES = 160

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class SplitBody:
    """Id in a body, and the bytes before and after it."""

    id: str
    before: bytes
    after: bytes


def split_body(data: bytes) -> SplitBody | None:
    """Return the parts of a body; None if its id is neither the first nor the last member.

    The parts are meaningful only if the body is valid: the id of an invalid body may be part of
    something else.
    """
    match = _FIRST.match(data) or _LAST.search(data, max(0, len(data) - _TAIL_BYTES))
    if match is None or len(data) > MAX_CONTENT_BYTES:
        return None
    start, end = match.span(1)
    return SplitBody(match[1].decode("ascii"), data[:start], data[end:])


class KnownBodies(Generic[Content]):
    """Values of contents by caller and bytes. One thread uses it.

    `is_current` returns whether a value may still be used.
    """

    def __init__(self, is_current: Callable[[Content], bool]) -> None:
        self._is_current = is_current
        self._values: dict[tuple[Hashable, bytes, bytes], Content] = {}

    def find(self, caller: Hashable, parts: SplitBody) -> Content | None:
        """Return the value of a content; None if it is unknown or not current."""
        value = self._values.get((caller, parts.before, parts.after))
        return value if value is not None and self._is_current(value) else None

    def keep(self, caller: Hashable, parts: SplitBody, value: Content) -> None:
        """Keep the value of a content that was parsed without an error."""
        if len(self._values) >= MAX_CONTENTS:
            self._values.clear()
        self._values[caller, parts.before, parts.after] = value
