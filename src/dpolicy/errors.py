"""Exceptions that dpolicy raises.

    DPolicyError
    ├── InvalidValue        a number, name or parameter is not valid (code, message)
    ├── PredicateFailed     a predicate ended in an error; the release is denied
    ├── PolicyRejected      a policy or another text has errors; carries all diagnostics
    ├── ReleaseRejected     a release does not fit the policy's vocabulary; carries all problems
    │   └── MalformedRelease   a release text or mapping has errors; carries all diagnostics
    ├── Denied              the policy denies the release of a gated run; carries the decision
    ├── OperationRejected   the ledger state does not permit the operation (code, message)
    ├── RequestRefused      the service refuses the caller or the request (code, message)
    ├── ApprovalRequired    a second person must approve first; carries the proposal number
    ├── PolicyConflicts     a policy conflicts with recorded releases; carries the conflicts
    ├── LedgerDamaged       the ledger does not verify, or has a newer format
    ├── LedgerUnavailable   the ledger cannot be opened or cannot guarantee durability
    ├── FileUnreadable      a file cannot be read; it is an `OSError`, too
    │   └── FileMissing        a file does not exist; it is a `FileNotFoundError`, too
    └── InvariantBroken     an internal check failed; the process must stop

The decision point returns a denial as a value. Only a gate raises it (`Denied`), because the gate
must stop the library before it reads data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

#: Number of names that a message lists.
_MAX_NAMES = 5


class DPolicyError(Exception):
    """Base class of all exceptions in this module."""


class InvalidValue(DPolicyError):
    """A value from outside that is not valid, with a stable code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class PredicateFailed(DPolicyError):
    """A predicate that ended in an error instead of true or false."""


class LocatedMessage(Protocol):
    """A message with its position in a text."""

    def __str__(self) -> str: ...


class PolicyRejected(DPolicyError):
    """A text with at least one error. dpolicy uses no part of it."""

    def __init__(self, diagnostics: Sequence[LocatedMessage]) -> None:
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)


class ReleaseRejected(DPolicyError):
    """A release with names or values that the policy does not define. Nothing was decided."""

    def __init__(self, problems: Sequence[InvalidValue]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def for_release(self, release: str) -> ReleaseRejected:
        """Return a copy whose messages name the release."""
        return ReleaseRejected(
            [InvalidValue(p.code, f"`{release}`: {p.message}") for p in self.problems]
        )


class MalformedRelease(PolicyRejected, ReleaseRejected):
    """A release text or mapping with at least one error. Nothing was decided.

    It is a `PolicyRejected` too, because earlier versions raised that.
    """

    def __init__(self, diagnostics: Sequence[LocatedMessage]) -> None:
        DPolicyError.__init__(self, "\n".join(str(diagnostic) for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)
        self.problems = tuple(
            InvalidValue(getattr(diagnostic, "code", ""), getattr(diagnostic, "message", ""))
            for diagnostic in diagnostics
        )


class DenialDetails(Protocol):
    """The parts of a denied decision that `Denied` needs."""

    @property
    def release(self) -> str:
        """Id of the release."""

    @property
    def exceeded_rules(self) -> Sequence[str]:
        """Names of the rules that the release would exceed."""

    @property
    def uncovered(self) -> Sequence[str]:
        """Names of the mechanisms that no rule covers."""

    @property
    def predicate_errors(self) -> Sequence[str]:
        """Messages of the predicates that ended in an error."""

    @property
    def counter_offers(self) -> Sequence[Mapping[str, Any]]:
        """Changes that would make the release allowed."""


class Denied(DPolicyError):
    """A gated run that was stopped before it read data, because its release is denied.

    `details` replaces the names of the exceeded rules in the message.
    """

    def __init__(self, decision: DenialDetails, details: str = "") -> None:
        causes = {
            "exceeded": decision.exceeded_rules,
            "not covered": decision.uncovered,
            "errors": decision.predicate_errors,
        }
        text = "; ".join(f"{cause}: {', '.join(names)}" for cause, names in causes.items() if names)
        super().__init__(f"`{decision.release}` is denied; {details or text}")
        self.decision = decision


class OperationRejected(DPolicyError):
    """An operation that the ledger state does not permit, with a stable code for programs."""

    def __init__(self, message: str, code: str = "misused") -> None:
        super().__init__(message)
        self.code = code


class RequestRefused(DPolicyError):
    """A request that the service refuses, with a stable code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ApprovalRequired(DPolicyError):
    """An operation that was recorded as a proposal; a second person must approve it."""

    def __init__(self, proposal: int) -> None:
        super().__init__(f"pending approval by a second person as proposal {proposal}")
        self.proposal = proposal


class PolicyConflicts(DPolicyError):
    """A policy that conflicts with recorded releases. It was not activated.

    `conflicts` are the rules that they exceed, and the names that they used with another
    definition.
    """

    def __init__(self, conflicts: Sequence[object]) -> None:
        count = "a conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
        names = [f"`{getattr(conflict, 'name', conflict)}`" for conflict in conflicts]
        rest = [f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
        listed = ", ".join([*names[:_MAX_NAMES], *rest])
        super().__init__(f"the policy has {count} with recorded releases: {listed}")
        self.conflicts = tuple(conflicts)


class LedgerDamaged(DPolicyError):
    """A ledger whose records do not verify. The decision point decides nothing on it."""


class LedgerUnavailable(DPolicyError):
    """A ledger that cannot be opened, or not with the promised durability."""


class FileUnreadable(DPolicyError, OSError):
    """A file that cannot be read, such as a directory."""


class FileMissing(FileUnreadable, FileNotFoundError):
    """A file that does not exist."""


class InvariantBroken(DPolicyError):
    """An internal check that failed. Used instead of `assert`, which `-O` removes."""
