"""Every exception dpolicy raises on purpose.

    DPolicyError
    ├── InvalidValue        a number, name or parameter that cannot mean anything (code, message)
    ├── PredicateFailed     a predicate could not be evaluated on a mechanism; the request is denied
    ├── PolicyRejected      a policy text with mistakes; carries all of its diagnostics
    ├── ReleaseRejected     a release that a policy cannot read; carries all that is wrong with it
    ├── Misused             a call that makes no sense here, such as voiding what was not reserved
    ├── Refused             a service refuses who asks, or how it is asked (code, message)
    ├── Waiting             a second person must approve first; carries the proposal
    ├── Conflicting         a policy that the past has already broken; carries the conflicts
    ├── LedgerDamaged       the ledger does not verify, or is of a newer format
    ├── LedgerUnavailable   the ledger cannot promise durability here, or cannot be reached
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


class ReleaseRejected(DPolicyError):
    """A release with names or values outside of the vocabulary. Nothing was decided."""

    def __init__(self, problems: Sequence[InvalidValue]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def about(self, release: str) -> ReleaseRejected:
        """The same, saying which of several releases it is about."""
        return ReleaseRejected(
            [InvalidValue(p.code, f"`{release}`: {p.message}") for p in self.problems]
        )


class Misused(DPolicyError):
    """A call that cannot be meant, with the reason and a stable code for programs."""

    def __init__(self, message: str, code: str = "misused") -> None:
        super().__init__(message)
        self.code = code


class Refused(DPolicyError):
    """A request that a service does not take, with a stable code and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Waiting(DPolicyError):
    """Nothing was done yet: a second person must approve the proposal of this number."""

    def __init__(self, proposal: int) -> None:
        super().__init__(f"waits for a second person as proposal {proposal}")
        self.proposal = proposal


class Conflicting(DPolicyError):
    """A policy whose rules the recorded past exceeds; nothing of it is in force."""

    def __init__(self, conflicts: Sequence[object]) -> None:
        super().__init__(f"{len(conflicts)} rules are already exceeded by the past")
        self.conflicts = tuple(conflicts)


class LedgerDamaged(DPolicyError):
    """The log is not what was written: nothing may be decided on it."""


class LedgerUnavailable(DPolicyError):
    """The log cannot be opened, or not with the durability that is promised."""


class InvariantBroken(DPolicyError):
    """Raised where an `assert` would be, because `assert` disappears under `-O`."""
