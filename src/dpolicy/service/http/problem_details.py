"""Problem details (RFC 9457) for errors, with stable codes.

`PROBLEMS` is the only table of codes. `docs/http-api.md` and the OpenAPI document are generated
from it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    LedgerDamaged,
    LedgerUnavailable,
    OperationRejected,
    PolicyConflicts,
    PolicyRejected,
    ReleaseRejected,
    RequestRefused,
)
from dpolicy.pdp.policy_changes.conflicts import conflicts_to_json
from dpolicy.text.diagnostics import Diagnostic


class ProblemType(NamedTuple):
    """Status and title of a problem code."""

    status: int
    title: str


#: Problem codes: first those of the HTTP request, then those of the operation that it requests.
PROBLEMS: dict[str, ProblemType] = {
    "bad-request": ProblemType(400, "malformed request"),
    "unauthenticated": ProblemType(401, "missing or invalid token"),
    "forbidden": ProblemType(403, "the caller may not do this"),
    "label-not-granted": ProblemType(403, "the caller has no grant for a restricted label"),
    "other-origin": ProblemType(403, "the request comes from a page of another site"),
    "not-found": ProblemType(404, "not found"),
    "method-not-allowed": ProblemType(405, "method not allowed for this path"),
    "too-slow": ProblemType(408, "the body took too long to arrive"),
    "too-large": ProblemType(413, "the body or the batch is too large"),
    "not-json": ProblemType(415, "the body must be JSON"),
    "wrong-host": ProblemType(421, "the request names another host"),
    "too-many-requests": ProblemType(429, "too many requests"),
    "internal": ProblemType(500, "internal server error"),
    "invalid": ProblemType(422, "the body has errors"),
    "release-rejected": ProblemType(422, "the policy cannot resolve the release"),
    "invalid-value": ProblemType(422, "invalid value"),
    "misused": ProblemType(422, "operation not possible"),
    "unknown-rule": ProblemType(422, "there is no such rule"),
    "unknown-unit": ProblemType(422, "there is no such unit"),
    "unit-required": ProblemType(422, "`unit` is required"),
    "id-taken": ProblemType(422, "the id belongs to another release"),
    "because-missing": ProblemType(422, "`because` is required"),
    "more-than-reserved": ProblemType(422, "the used release costs more than the reservation"),
    "no-policy": ProblemType(409, "no active policy"),
    "already-imported": ProblemType(409, "the release was imported and is already charged"),
    "already-voided": ProblemType(409, "the release was voided"),
    "already-rejected": ProblemType(409, "the proposal for the release was rejected"),
    "already-answered": ProblemType(409, "the proposal was already answered"),
    "pending": ProblemType(409, "the release is pending approval"),
    "not-reserved": ProblemType(409, "the release is not reserved"),
    "needs-second-person": ProblemType(403, "returning budget requires a second approver"),
    "policy-changed": ProblemType(409, "the active policy changed during the request"),
    "second-person": ProblemType(403, "a person other than the proposer must answer"),
    "conflicting": ProblemType(409, "the policy conflicts with recorded releases"),
    "access-unreadable": ProblemType(
        503, "the access file of the server or the keys of an issuer cannot be read"
    ),
    "ledger-unavailable": ProblemType(503, "the ledger is unavailable; retry with the same id"),
    "ledger-damaged": ProblemType(500, "the ledger is damaged"),
}

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger("dpolicy")


def problem_from_error(error: DPolicyError) -> tuple[str, str, dict[str, Any]]:
    """Return code, detail and further members of the problem for an error."""
    detail = str(error)
    match error:
        case RequestRefused() | OperationRejected():
            return error.code if error.code in PROBLEMS else "misused", detail, {}
        case PolicyRejected():
            diagnostics = [d.as_json() for d in error.diagnostics if isinstance(d, Diagnostic)]
            return "invalid", _first_line(detail), {"diagnostics": diagnostics}
        case ReleaseRejected():
            problems = [_value_problem(problem) for problem in error.problems]
            return "release-rejected", _first_line(detail), {"problems": problems}
        case InvalidValue():
            return "invalid-value", error.message, {"problems": [_value_problem(error)]}
        case PolicyConflicts():
            return "conflicting", detail, conflicts_to_json(error.conflicts)
        case LedgerUnavailable():
            return "ledger-unavailable", detail, {}
        case LedgerDamaged():
            return "ledger-damaged", detail, {}
    return "internal", "an internal check failed; the error is in the log of the server", {}


def problem_to_json(
    code: str, detail: str, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a problem as a JSON object; `extra` has its further members."""
    kind = PROBLEMS[code]
    return {
        "type": f"urn:dpolicy:problem:{code}",
        "title": kind.title,
        "status": kind.status,
        "code": code,
        "detail": detail,
        **(extra or {}),
    }


def problem_response(
    code: str, detail: str, extra: Mapping[str, Any] | None = None, headers: Any = None
) -> Response:
    """Return the response for a problem; `extra` has its further members."""
    problem = problem_to_json(code, detail, extra)
    body = json.dumps(problem, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, PROBLEMS[code].status, headers, MEDIA_TYPE)


def log_error(method: str, path: str, error: DPolicyError) -> None:
    """Write an error to the log if the server or its ledger is at fault."""
    if problem_from_error(error)[0] in ("internal", "ledger-damaged"):
        _log.error("%s %s: %s", method, path, error, exc_info=error)


def unexpected_error_response() -> Response:
    """Return the response for an error that is not a `DPolicyError`."""
    return problem_response("internal", "the error is in the log of the server")


def error_response(error: DPolicyError) -> Response:
    """Return the response for an error, with the headers that its code requires."""
    code, detail, extra = problem_from_error(error)
    headers = {
        "unauthenticated": {"WWW-Authenticate": 'Bearer realm="dpolicy"'},
        "too-many-requests": {"Retry-After": "1"},
        "ledger-unavailable": {"Retry-After": "1"},
        "access-unreadable": {"Retry-After": "5"},
    }
    return problem_response(code, detail, extra, headers.get(code))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _value_problem(error: InvalidValue) -> dict[str, str]:
    return {"code": error.code, "message": error.message}
