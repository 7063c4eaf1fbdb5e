"""Every exception dpolicy raises on purpose.

    DPolicyError
    ├── InvalidValue        a number, name or parameter that cannot mean anything (code, message)
    ├── PredicateFailed     a predicate could not be evaluated on a mechanism; the request is denied
    ├── PolicyRejected      a policy text with mistakes; carries all of its diagnostics
    ├── ReleaseRejected     a release that a policy cannot read; carries all that is wrong with it
    ├── Denied              a gated library asked and the policy said no; carries the decision
    ├── Misused             a call that makes no sense here, such as voiding what was not reserved
    ├── Refused             a service refuses who asks, or how it is asked (code, message)
    ├── Waiting             a second person must approve first; carries the proposal
    ├── Conflicting         a policy that the past has already broken; carries the conflicts
    ├── LedgerDamaged       the ledger does not verify, or is of a newer format
    ├── LedgerUnavailable   the ledger cannot promise durability here, or cannot be reached
    └── InvariantBroken     a promise the code makes to itself failed; the process must stop

A denial is a value, not an exception, but where a library must be stopped before it reads data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


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


class LocatedMessage(Protocol):
    """What a rejection carries: something that prints itself with its place in the text."""

    def __str__(self) -> str: ...


class PolicyRejected(DPolicyError):
    """A policy text with at least one error. Nothing of it is in force."""

    def __init__(self, diagnostics: Sequence[LocatedMessage]) -> None:
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)


class ReleaseRejected(DPolicyError):
    """A release with names or values outside of the vocabulary. Nothing was decided."""

    def __init__(self, problems: Sequence[InvalidValue]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def for_release(self, release: str) -> ReleaseRejected:
        """The same, saying which of several releases it is about."""
        return ReleaseRejected(
            [InvalidValue(p.code, f"`{release}`: {p.message}") for p in self.problems]
        )


class DenialDetails(Protocol):
    """What a denial carries: a decision, with its reasons."""

    @property
    def release(self) -> str:
        """The id that was asked for."""

    @property
    def broken(self) -> Sequence[str]:
        """The rules that would not hold."""

    @property
    def uncovered(self) -> Sequence[str]:
        """The mechanisms that no rule covers."""

    @property
    def predicate_errors(self) -> Sequence[str]:
        """The predicates that ended in an error."""

    @property
    def counter_offers(self) -> Sequence[Mapping[str, Any]]:
        """Changes with which it would be allowed."""


class Denied(DPolicyError):
    """A run that was stopped before it read anything, because the policy denies its release."""

    def __init__(self, decision: DenialDetails) -> None:
        reasons = {
            "broken": decision.broken,
            "not covered": decision.uncovered,
            "errors": decision.predicate_errors,
        }
        shown = "; ".join(f"{what}: {', '.join(names)}" for what, names in reasons.items() if names)
        super().__init__(f"`{decision.release}` is denied; {shown}")
        self.decision = decision


class OperationRejected(DPolicyError):
    """A call that cannot be meant, with the reason and a stable code for programs."""

    def __init__(self, message: str, code: str = "misused") -> None:
        super().__init__(message)
        self.code = code


class RequestRefused(DPolicyError):
    """A request that a service does not take, with a stable code and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ApprovalRequired(DPolicyError):
    """Nothing was done yet: a second person must approve the proposal of this number."""

    def __init__(self, proposal: int) -> None:
        super().__init__(f"waits for a second person as proposal {proposal}")
        self.proposal = proposal


class PolicyConflicts(DPolicyError):
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
