"""Every exception dpolicy raises on purpose.

    DPolicyError
    ├── InvalidValue        a number, name or parameter that cannot mean anything (code, message)
    ├── PredicateFailed     a predicate could not be evaluated on a mechanism; the request is denied
    ├── PolicyRejected      a policy text with mistakes; carries all of its diagnostics
    └── InvariantBroken     a promise the code makes to itself failed; the process must stop

A denial is a value, not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class DPolicyError(Exception):
    """The root of the tree."""


class InvalidValue(DPolicyError):
    """A value from outside that is refused, with a stable code and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class PredicateFailed(DPolicyError):
    """A predicate ended in an error instead of true or false."""


class Located(Protocol):
    """What a rejection carries: something that prints itself with its place in the text."""

    def __str__(self) -> str: ...


class PolicyRejected(DPolicyError):
    """A policy text with at least one error. Nothing of it is in force."""

    def __init__(self, diagnostics: Sequence[Located]) -> None:
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)


class InvariantBroken(DPolicyError):
    """Raised where an `assert` would be, because `assert` disappears under `-O`."""
