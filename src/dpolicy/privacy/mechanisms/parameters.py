"""Fields of a mechanism → exact, checked values, with every problem reported.

Numbers arrive as exact fractions. A `Reader` takes parameters out of a mapping one after the other,
remembers what is wrong with each, and at the end names the ones that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fractions import Fraction

from dpolicy.errors import InvalidValue

#: Every code, and what it means for whoever wrote the release.
PROBLEMS: Mapping[str, str] = {
    "M001": "the kind of mechanism is missing or unknown",
    "M002": "the kind of mechanism has no such parameter",
    "M003": "a parameter that the mechanism needs is missing",
    "M004": "a value of the wrong type, such as text where a number belongs",
    "M005": "a number that must be positive is not",
    "M006": "a number so small, large or long that it must be a mistake",
    "M007": "a sampling rate outside of (0, 1]",
    "M008": "a count that is not a whole number",
    "M009": "parameters that exclude each other, or none of those of which one is needed",
    "M010": "a δ outside of [0, 1)",
    "M011": "a Rényi order that is not above 1, or beyond reason",
    "M012": "a Rényi curve that falls with the order; divergences never do",
    "M013": "a Rényi curve whose (α−1)·divergence is not convex; that of every mechanism is",
    "M014": "a loss that depends on the data, which would itself leak (theory 3.9)",
    "M015": "a noise for report-noisy-max that is not supported",
    "M016": "a probability outside of its range",
    "M017": "a parameter of the noise restated for another unit; the noise is the same for all",
    "M018": "a restatement for a unit that the policy does not define",
    "M019": "no amount of noise meets the target of a calibration",
}

#: Sizes of noise, sensitivity and loss between which numbers mean something.
SMALLEST, LARGEST = Fraction(1, 10**9), Fraction(10**9)

#: No mechanism is run or composed more often than this.
MAX_COUNT = 10**9

#: Longer numbers are an attack or an accident; no δ below 1e-100 is meant seriously.
MAX_DIGITS = 100

#: The largest Rényi order: curves of real mechanisms say nothing new beyond.
MAX_STATED_ORDER = 10**6

#: More stated orders than this are an attack or an accident.
MAX_POINTS = 1_000


class ParameterReader:
    """Takes parameters out of one mapping and collects what is wrong with them."""

    def __init__(self, fields: Mapping[str, object], kind: str) -> None:
        self._fields = dict(fields)
        self._kind = kind
        self._known: set[str] = set()
        self.problems: list[InvalidValue] = []

    def allow(self, name: str) -> bool:
        """Whether a parameter is given; asking makes it known."""
        self._known.add(name)
        return name in self._fields

    def raw(self, name: str) -> object:
        """A given parameter as it is."""
        return self._fields[name]

    def report(self, code: str, message: str) -> None:
        """Remember a problem."""
        self.problems.append(InvalidValue(code, message))

    def positive(self, name: str, default: Fraction | None = None) -> Fraction:
        """A number above zero and within reason."""
        value = self._number(name, default)
        if value is not None:
            self.check_size(f"`{name}`", value)
        return Fraction(1) if value is None else value

    def not_negative(self, name: str) -> Fraction:
        """A number that may be left out or zero."""
        value = self._number(name, Fraction(0))
        if value:
            self.check_size(f"`{name}`", value)
        return value or Fraction(0)

    def positive_integer(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A count."""
        value = self._number(name, None if default is None else Fraction(default))
        if value is None:
            return least
        if value.denominator != 1:
            self.report("M008", f"`{name}` must be a whole number, not `{format_number(value)}`")
        elif value <= 0:
            self.report("M005", f"`{name}` must be positive, not `{format_number(value)}`")
        elif not least <= value <= MAX_COUNT:
            self.report(
                "M006", f"`{name}` is `{format_number(value)}`, outside {least} to {MAX_COUNT}"
            )
        else:
            return int(value)
        return least

    def rate(self, name: str = "sampling-rate") -> Fraction | None:
        """A probability of being sampled, if given."""
        if not self.allow(name):
            return None
        value = self._number(name, None)
        if value is None:
            return None
        if not 0 < value <= 1:
            message = (
                f"`{name}` is `{format_number(value)}`; a sampling rate is above 0 and at most 1"
            )
            self.report("M007", message)
            return None
        self.check_size(f"`{name}`", value)
        return value

    def probability(self, name: str, low: Fraction, high: Fraction) -> Fraction:
        """A number strictly between two others."""
        value = self._number(name, None)
        if value is not None and not low < value < high:
            wanted = f"above {format_number(low)} and below {format_number(high)}"
            self.report("M016", f"`{name}` is `{format_number(value)}`; it must be {wanted}")
        elif value is not None and min(value - low, high - value) < SMALLEST:
            self.report(
                "M006", f"`{name}` is `{format_number(value)}`, absurdly close to its limit"
            )
        elif value is not None:
            return value
        return (low + high) / 2

    def delta(self, name: str = "delta") -> Fraction:
        """A δ, which may be left out or zero."""
        value = self._number(name, Fraction(0))
        if value is None:
            return Fraction(0)
        if not 0 <= value < 1:
            self.report(
                "M010", f"`{name}` is `{format_number(value)}`; it must be at least 0 and below 1"
            )
            return Fraction(0)
        return value

    def choice(self, name: str, values: Iterable[str], code: str, why: str = "") -> str:
        """One of a few words."""
        known = list(values)
        if not self.allow(name):
            self.report("M003", f"`{self._kind}` needs `{name}`; one of {', '.join(known)}")
            return known[0]
        value = self._fields[name]
        if not isinstance(value, str) or value not in known:
            hint = why or parameter_suggestion(str(value), known) or f"; one of {', '.join(known)}"
            self.report(code, f"unknown `{name}` `{value}`{hint}")
            return known[0]
        return value

    def finish(self) -> tuple[InvalidValue, ...]:
        """All problems, with the parameters that nobody asked for."""
        for name in self._fields:
            if name not in self._known:
                hint = parameter_suggestion(str(name), sorted(self._known - {"kind"}))
                self.report("M002", f"`{self._kind}` has no parameter `{name}`{hint}")
        return tuple(self.problems)

    def number(self, what: str, value: object) -> Fraction | None:
        """An exact number, or None with a problem."""
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            self.report("M004", f"{what} must be a number, not `{value}`")
            return None
        if max(abs(value.numerator), value.denominator) > 10**MAX_DIGITS:
            self.report("M006", f"{what} has more than {MAX_DIGITS} digits")
            return None
        return Fraction(value)

    def _number(self, name: str, default: Fraction | None) -> Fraction | None:
        if not self.allow(name):
            if default is None:
                self.report("M003", f"`{self._kind}` needs `{name}`")
            return default
        return self.number(f"`{name}`", self._fields[name])

    def check_size(self, what: str, value: Fraction) -> None:
        """Report a number that is not positive or beyond reason."""
        if value <= 0:
            self.report("M005", f"{what} must be positive, not `{format_number(value)}`")
        elif not SMALLEST <= value <= LARGEST:
            self.report("M006", f"{what} is `{format_number(value)}`, outside 1e-9 to 1e9")


def parameter_suggestion(word: str, known_names: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing."""
    close = get_close_matches(word, list(known_names), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def format_number(value: Fraction) -> str:
    """A number as people wrote it, or near it."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"
