"""Whatever goes wrong → a problem as RFC 9457 has it, with a code that never changes its meaning.

`PROBLEMS` is the only table of codes; `docs/http.md` and the OpenAPI document are made of it.
"""

from __future__ import annotations

import json
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
from dpolicy.pdp.conflicts import conflict_to_json
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.text.diagnostics import Diagnostic


class ProblemType(NamedTuple):
    """A kind of problem: its status and what it says to everybody."""

    status: int
    title: str


#: Every code. The first part is about the request itself, the second about what it asks for.
PROBLEMS: dict[str, ProblemType] = {
    "bad-request": ProblemType(400, "the request cannot be read"),
    "unauthenticated": ProblemType(401, "nobody is known by this token"),
    "forbidden": ProblemType(403, "this person may not do that"),
    "label-not-granted": ProblemType(403, "this person may not claim a restricted label"),
    "other-origin": ProblemType(403, "the request was made by a page of somebody else"),
    "not-found": ProblemType(404, "there is no such thing"),
    "method-not-allowed": ProblemType(405, "the path is there, the method is not"),
    "too-slow": ProblemType(408, "the body took too long to arrive"),
    "too-large": ProblemType(413, "the body or the batch is too large"),
    "not-json": ProblemType(415, "the body must be JSON"),
    "wrong-host": ProblemType(421, "the request was meant for another host"),
    "too-many-requests": ProblemType(429, "too many requests"),
    "internal": ProblemType(500, "a mistake in the server"),
    "invalid": ProblemType(422, "the body has mistakes"),
    "release-rejected": ProblemType(422, "the policy cannot read the release"),
    "invalid-value": ProblemType(422, "a value cannot mean anything"),
    "misused": ProblemType(422, "the request makes no sense here"),
    "id-taken": ProblemType(422, "the id was used for another release"),
    "because-missing": ProblemType(422, "the request must say `because`"),
    "more-than-reserved": ProblemType(422, "what was run costs more than what was reserved"),
    "no-policy": ProblemType(409, "no policy is in force yet"),
    "already-imported": ProblemType(409, "the release was imported: it is charged already"),
    "already-voided": ProblemType(409, "the release was voided"),
    "already-rejected": ProblemType(409, "the release was rejected by a second person"),
    "already-answered": ProblemType(409, "the proposal was answered before"),
    "waiting": ProblemType(409, "the release waits for a second person"),
    "not-reserved": ProblemType(409, "the release is not reserved"),
    "needs-second-person": ProblemType(403, "nobody gives budget back alone"),
    "policy-changed": ProblemType(409, "another policy came into force meanwhile"),
    "second-person": ProblemType(403, "another person than the one who proposed must answer"),
    "conflicting": ProblemType(409, "the past has already broken rules of this policy"),
    "access-unreadable": ProblemType(503, "the server cannot read who may do what"),
    "ledger-unavailable": ProblemType(
        503, "the ledger cannot be reached; ask again with the same id"
    ),
    "ledger-damaged": ProblemType(500, "the ledger does not verify"),
}

MEDIA_TYPE = "application/problem+json"


def problem_from_error(error: DPolicyError) -> tuple[str, str, dict[str, Any]]:
    """The code, the detail and further members of an error."""
    detail, more = str(error), dict[str, Any]()
    match error:
        case RequestRefused() | OperationRejected():
            return error.code if error.code in PROBLEMS else "misused", detail, more
        case PolicyRejected():
            found = [d.as_json() for d in error.diagnostics if isinstance(d, Diagnostic)]
            return "invalid", _first_line(detail), {"diagnostics": found}
        case ReleaseRejected():
            said = [{"code": p.code, "message": p.message} for p in error.problems]
            return "release-rejected", _first_line(detail), {"problems": said}
        case InvalidValue():
            return "invalid-value", error.message, {"problems": [_said(error)]}
        case PolicyConflicts():
            listed = [conflict_to_json(c) for c in error.conflicts if isinstance(c, RuleStatus)]
            return "conflicting", detail, {"conflicts": listed}
        case LedgerUnavailable():
            return "ledger-unavailable", detail, more
        case LedgerDamaged():
            return "ledger-damaged", detail, more
    return "internal", "a promise of the server to itself failed; it is in the server's log", more


def problem_response(
    code: str, detail: str, more: Mapping[str, Any] | None = None, headers: Any = None
) -> Response:
    """A problem as it is sent."""
    kind = PROBLEMS[code]
    said = {
        "type": f"urn:dpolicy:problem:{code}",
        "title": kind.title,
        "status": kind.status,
        "code": code,
        "detail": detail,
        **(more or {}),
    }
    body = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, kind.status, headers, MEDIA_TYPE)


def error_response(error: DPolicyError) -> Response:
    """An error as it is sent."""
    code, detail, more = problem_from_error(error)
    headers = {
        "unauthenticated": {"WWW-Authenticate": 'Bearer realm="dpolicy"'},
        "too-many-requests": {"Retry-After": "1"},
        "ledger-unavailable": {"Retry-After": "1"},
        "access-unreadable": {"Retry-After": "5"},
    }
    return problem_response(code, detail, more, headers.get(code))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _said(error: InvalidValue) -> dict[str, str]:
    return {"code": error.code, "message": error.message}
