"""Reader of parsed JSON or YAML that reports every problem with its path.

Files of other tools arrive as plain values without line numbers, so a problem names the path of its
value, such as `requests[0].profit`. A wrong value is reported and replaced by a neutral one, so
that the remaining values are still checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any, Final, TypeVar

from dpolicy.errors import InvalidValue
from dpolicy.releases.regions import MAX_PARTITION_VALUES

Problems = tuple[InvalidValue, ...]
Value = TypeVar("Value")

#: Value of a required key that is absent and already reported.
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class ProblemCodes:
    """Codes under which one file format reports the problems that all formats share."""

    wrong_type: str
    missing: str
    out_of_range: str
    duplicate: str


class ValueReader:
    """Reads plain values and collects problems; identical problems are kept once."""

    def __init__(self, codes: ProblemCodes) -> None:
        self._codes = codes
        self._code_by_message: dict[str, str] = {}

    @property
    def problems(self) -> Problems:
        """All problems so far, in the order in which they were reported."""
        pairs = self._code_by_message.items()
        return tuple(InvalidValue(code, message) for message, code in pairs)

    @property
    def problem_count(self) -> int:
        """Number of problems so far."""
        return len(self._code_by_message)

    def result(self, value: Value) -> tuple[Value | None, Problems]:
        """Return `value` and no problems, or None and all problems."""
        problems = self.problems
        return (None if problems else value), problems

    def report(self, code: str, path: str, message: str) -> None:
        """Add a problem with the value at `path`."""
        self._code_by_message.setdefault(f"{path}: {message}", code)

    def report_type(self, path: str, expected: str, data: object) -> None:
        """Add a problem with the type of a value."""
        self.report(self._codes.wrong_type, path, f"expected {expected}, got `{shorten(data)}`")

    def field(self, data: Any, key: str, path: str) -> tuple[Any, str]:
        """Return the value of a required key, or `MISSING`, and its path."""
        field_path = f"{path}.{key}" if path else key
        if data is MISSING:
            return MISSING, field_path
        if not isinstance(data, Mapping):
            self.report_type(path or "the file", "a map", data)
            return MISSING, field_path
        if key not in data:
            self.report(self._codes.missing, path or "the file", f"`{key}` is missing")
        return data.get(key, MISSING), field_path

    def optional_field(self, data: Any, key: str, path: str) -> tuple[Any, str]:
        """Return the value of an optional key, or None, and its path."""
        return (data.get(key) if isinstance(data, Mapping) else None), f"{path}.{key}"

    def read_list(self, data: Any, path: str, read: Callable[[Any, str], Value]) -> list[Value]:
        """Read each item of a list with `read(item, path)`."""
        if data is MISSING:
            return []
        if not isinstance(data, list | tuple):
            self.report_type(path, "a list", data)
            return []
        return [read(item, f"{path}[{n}]") for n, item in enumerate(data)]

    def read_map(self, data: Any, path: str, read: Callable[[Any, str], Value]) -> dict[str, Value]:
        """Read each value of a map with `read(value, path)`."""
        if data is MISSING:
            return {}
        if not isinstance(data, Mapping):
            self.report_type(path, "a map", data)
            return {}
        return {str(key): read(item, f"{path}.{key}") for key, item in data.items()}

    def read_integer(self, data: Any, path: str, minimum: int = -MAX_PARTITION_VALUES) -> int:
        """Read an integer from `minimum` to the largest value of a partition."""
        is_integer = isinstance(data, int) and not isinstance(data, bool)
        if is_integer and minimum <= data <= MAX_PARTITION_VALUES:
            return int(data)
        if data is not MISSING:
            self.report_type(path, f"an integer from {minimum} to {MAX_PARTITION_VALUES}", data)
        return max(minimum, 0)

    def read_amount(self, data: Any, path: str) -> Fraction:
        """Read a finite number of at least 0; a float is read as the decimal that it prints."""
        is_number = isinstance(data, int | float | Fraction | Decimal)
        if is_number and not isinstance(data, bool) and isfinite(data) and data >= 0:
            return Fraction(repr(data)) if isinstance(data, float) else Fraction(data)
        if data is not MISSING:
            message = f"expected a number of at least 0, got `{shorten(data)}`"
            self.report(self._codes.out_of_range, path, message)
        return Fraction(0)

    def read_name(self, data: Any, path: str) -> str:
        """Read a text that is not empty."""
        if isinstance(data, str) and data:
            return data
        if data is not MISSING:
            self.report_type(path, "a name", data)
        return ""

    def check_distinct(self, names: Iterable[object], path: str, noun: str) -> None:
        """Report every name that occurs more than once."""
        for name, count in Counter(names).items():
            if count > 1:
                message = f"{noun} `{shorten(name)}` occurs {count} times"
                self.report(self._codes.duplicate, path, message)


def lookup(data: Any, path: str) -> Any:
    """Return the value at a path of keys such as `deployment.basic.name`, or None."""
    value = data
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def shorten(data: object) -> str:
    """Return a value as text of at most 60 characters, for messages."""
    text = str(data)
    return text if len(text) <= 60 else f"{text[:57]}..."
