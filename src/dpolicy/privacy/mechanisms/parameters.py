"""Reader of mechanism parameters: exact, checked values, with every problem reported.

Numbers arrive as exact fractions. A `ParameterReader` returns a valid placeholder for an invalid
parameter and continues, so that one pass reports all problems of a mechanism.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.number_text import BUDGET_DIGITS, format_up
from dpolicy.text.did_you_mean import closest_name, suggest

#: Titles of the problem codes of mechanisms.
PROBLEMS: Mapping[str, str] = {
    "M001": "the mechanism kind is missing or unknown",
    "M002": "the mechanism kind does not have this parameter",
    "M003": "a required parameter is missing",
    "M004": "a value has the wrong type, for example text instead of a number",
    "M005": "a number must be positive",
    "M006": "a number is outside the accepted range, or has too many digits",
    "M007": "a sampling rate is outside (0, 1]",
    "M008": "a count is not a whole number",
    "M009": "parameters exclude each other, or a required alternative is missing",
    "M010": "a δ is outside [0, 1)",
    "M011": "a Rényi order is outside the accepted range",
    "M012": "a Rényi curve decreases with the order; a Rényi divergence never does",
    "M013": "a Rényi curve has a (α−1)·divergence that is not convex; every mechanism's is convex",
    "M014": "a loss depends on the data; such a loss would itself leak (theory 3.9)",
    "M015": "report-noisy-max does not support this noise",
    "M016": "a probability is outside its range",
    "M017": "a restatement changes a noise parameter; the noise is the same for every unit",
    "M018": "a restatement names a unit that the policy does not define",
    "M019": "no amount of noise meets the target of a calibration",
}

#: Accepted range of noise, sensitivity and loss.
SMALLEST, LARGEST = Fraction(1, 10**9), Fraction(10**9)

#: Largest count: no mechanism runs or composes more often.
MAX_COUNT = 10**9

#: Largest number of digits, which bounds the cost of exact arithmetic. It allows δ = 10⁻¹⁰⁰.
MAX_DIGITS = 100

#: Largest numerator and denominator of a number with `MAX_DIGITS` digits.
_LARGEST_PART = 10**MAX_DIGITS

#: `LARGEST` as an integer, which is also the denominator of `SMALLEST`: integers compare quickly.
_SIZE_LIMIT = 10**9

_ZERO, _ONE = Fraction(0), Fraction(1)

#: Largest Rényi order: the curve of a real mechanism has no further information beyond it.
MAX_STATED_ORDER = 10**6

#: Largest number of stated orders, which bounds the size of a curve.
MAX_POINTS = 1_000


class ParameterReader:
    """Reader of the parameters of one mechanism, which collects all problems."""

    def __init__(self, fields: Mapping[str, object], kind: str, allowed: Set[str]) -> None:
        """Read `fields` of a mechanism of `kind`; `allowed` are the names of its parameters."""
        self._fields = dict(fields)
        self._kind = kind
        self._allowed = allowed
        self.problems: list[InvalidValue] = []

    def has(self, name: str) -> bool:
        """Return whether a parameter is present."""
        return name in self._fields

    def raw(self, name: str) -> object:
        """Return the unchecked value of a parameter that is present."""
        return self._fields[name]

    def report(self, code: str, message: str) -> None:
        """Add a problem."""
        self.problems.append(InvalidValue(code, message))

    def positive(self, name: str, default: Fraction | None = None) -> Fraction:
        """Return a number above zero and within the accepted range."""
        value = self._number(name, default)
        if value is not None:
            self.check_size(f"`{name}`", value)
        return _ONE if value is None else value

    def not_negative(self, name: str) -> Fraction:
        """Return a number that may be zero; zero if it is absent."""
        value = self._number(name, _ZERO)
        if value:
            self.check_size(f"`{name}`", value)
        return value or _ZERO

    def positive_integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """Return an integer from `minimum` to `MAX_COUNT`."""
        if default is not None and not self.has(name):
            return default
        value = self._number(name, None)
        if value is None:
            return minimum
        if value.denominator == 1 and minimum <= value.numerator <= MAX_COUNT:
            return int(value)
        text = format_number(value)
        if value.denominator != 1:
            self.report("M008", f"`{name}` must be a whole number, not `{text}`")
        elif value <= 0:
            self.report("M005", f"`{name}` must be positive, not `{text}`")
        else:
            self.report("M006", f"`{name}` is `{text}`, outside {minimum} to {MAX_COUNT}")
        return minimum

    def rate(self, name: str = "sampling-rate") -> Fraction | None:
        """Return a sampling rate; None if it is absent or invalid."""
        if not self.has(name):
            return None
        value = self._number(name, None)
        if value is None:
            return None
        if not 0 < value <= 1:
            text = format_number(value)
            self.report("M007", f"`{name}` is `{text}`; it must be above 0 and at most 1")
            return None
        self.check_size(f"`{name}`", value)
        return value

    def probability(self, name: str, low: Fraction, high: Fraction) -> Fraction:
        """Return a number strictly between `low` and `high`."""
        middle = (low + high) / 2
        value = self._number(name, None)
        if value is None:
            return middle
        text = format_number(value)
        if not low < value < high:
            limits = f"above {format_number(low)} and below {format_number(high)}"
            self.report("M016", f"`{name}` is `{text}`; it must be {limits}")
            return middle
        if min(value - low, high - value) < SMALLEST:
            self.report("M006", f"`{name}` is `{text}`, within 1e-9 of its limit")
            return middle
        return value

    def delta(self, name: str = "delta") -> Fraction:
        """Return a δ; zero if it is absent."""
        value = self._number(name, _ZERO)
        if value is None:
            return _ZERO
        if not 0 <= value.numerator < value.denominator:
            text = format_number(value)
            self.report("M010", f"`{name}` is `{text}`; it must be at least 0 and below 1")
            return _ZERO
        return value

    def choice(self, name: str, values: Iterable[str], code: str, hint: str = "") -> str:
        """Return one of `values`. `hint` replaces the suggestion in the problem `code`."""
        names = list(values)
        choices = f"; one of {', '.join(names)}"
        if not self.has(name):
            self.report("M003", f"`{self._kind}` needs `{name}`{choices}")
            return names[0]
        value = self._fields[name]
        if not isinstance(value, str) or value not in names:
            suggestion = hint or suggestion_or(str(value), names, choices)
            self.report(code, f"unknown `{name}` `{value}`{suggestion}")
            return names[0]
        return value

    def finish(self) -> tuple[InvalidValue, ...]:
        """Report unknown parameters; return all problems."""
        for name in self._fields:
            if name != "kind" and name not in self._allowed:
                suggestion = suggest(str(name), self._allowed)
                hint = f"; {suggestion}" if suggestion else ""
                self.report("M002", f"`{self._kind}` has no parameter `{name}`{hint}")
        return tuple(self.problems)

    def number(self, subject: str, value: object) -> Fraction | None:
        """Return an exact number, or None with a problem about `subject`."""
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            self.report("M004", f"{subject} must be a number, not `{_plain_text(value)}`")
            return None
        if max(abs(value.numerator), value.denominator) > _LARGEST_PART:
            self.report("M006", f"{subject} has more than {MAX_DIGITS} digits")
            return None
        return value if type(value) is Fraction else Fraction(value)

    def check_size(self, subject: str, value: Fraction) -> bool:
        """Return whether a number is positive and within the accepted range; report it if not."""
        numerator, denominator = value.numerator, value.denominator
        if numerator <= 0:
            self.report("M005", f"{subject} must be positive, not `{format_number(value)}`")
        elif numerator > _SIZE_LIMIT * denominator or denominator > _SIZE_LIMIT * numerator:
            self.report("M006", f"{subject} is `{format_number(value)}`, outside 1e-9 to 1e9")
        else:
            return True
        return False

    def _number(self, name: str, default: Fraction | None) -> Fraction | None:
        if not self.has(name):
            if default is None:
                self.report("M003", f"`{self._kind}` needs `{name}`")
            return default
        return self.number(f"`{name}`", self._fields[name])


def suggestion_or(word: str, names: Iterable[str], default: str) -> str:
    """Return `; did you mean …?` if a name is close to the word, and `default` otherwise."""
    close = closest_name(word, names)
    return default if close is None else f"; did you mean `{close}`?"


def format_number(value: Fraction) -> str:
    """Return a stated number as text: integers exactly, others rounded up to twelve digits."""
    return str(value.numerator) if value.denominator == 1 else format_up(value, BUDGET_DIGITS)


def _plain_text(value: object) -> str:
    """Return a plain value as its author wrote it: `[5]` for a list with an exact number."""
    if isinstance(value, Mapping):
        items = (f"{key}: {_plain_text(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain_text, value)) + "]"
    return str(value)
