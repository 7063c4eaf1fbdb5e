"""Calls of the HTTP API: the request of each call, and the value or error of its response.

One function per call builds an `ApiCall`; `Client` and `AsyncClient` share them. The functions do
no network input or output. Imports that only some calls need are inside functions, because
importing the client must load neither NumPy nor the policy language.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from dpolicy.errors import (
    ApprovalRequired,
    DPolicyError,
    InvalidValue,
    LedgerDamaged,
    LedgerUnavailable,
    MalformedRelease,
    OperationRejected,
    PolicyConflicts,
    PolicyRejected,
    ReleaseRejected,
    RequestRefused,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.chain import Record
from dpolicy.releases.decision import Decision, DisplayedLoss
from dpolicy.releases.problem_codes import author_problem
from dpolicy.releases.python.budget_table import Budgets, status_line
from dpolicy.releases.redefinition import Redefinition
from dpolicy.text.summaries import html_line

if TYPE_CHECKING:
    from dpolicy.releases.body import Body
    from dpolicy.releases.release import Release
    from dpolicy.rules.compiler import CompiledPolicy
    from dpolicy.text.diagnostics import Diagnostic

T = TypeVar("T")

#: Problem codes that a local decision point also raises, as `OperationRejected`. The client raises
#: `RequestRefused` for other codes, unless `error_from_problem` names a more specific error.
_OPERATION_CODES = frozenset(
    {
        *("misused", "unknown-rule", "unknown-unit", "unit-required"),
        "not-found",
        "id-taken",
        "because-missing",
        "more-than-reserved",
        "no-policy",
        "already-imported",
        "already-voided",
        "already-rejected",
        "already-answered",
        "pending",
        "not-reserved",
        "policy-changed",
        "second-person",
    }
)


@dataclass(frozen=True, slots=True)
class EndOfReservation:
    """Reservation that a call ends, and its status afterwards.

    If the first attempt succeeded and its response was lost, the retry fails with `not-reserved`.
    The client then compares the status of the release.
    """

    release: str
    status: str


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request of the API, and the function that decodes the JSON of its 200 response.

    `malformed` is the error if the server reports diagnostics of the request.
    """

    method: str
    path: str
    decode: Callable[[Mapping[str, Any]], T]
    body: bytes | None = None
    query: Sequence[tuple[str, str]] = ()
    ends: EndOfReservation | None = None
    malformed: type[PolicyRejected] = PolicyRejected


class RuleName(str):
    """Name of a rule, with the attribute `name` that a rule of a decision point has."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name itself."""
        return str(self)


@dataclass(frozen=True, slots=True)
class RemoteRuleStatus:
    """Budget of a rule, its balance, and whether it is satisfied, as a server reports them.

    It has the attributes of `RuleStatus`; `rule` is the name, which has an attribute `name` too.
    """

    rule: RuleName
    unit: str
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    holds: bool
    spenders: tuple[str, ...] = ()
    location: Mapping[str, str | int] = field(default_factory=dict)
    source: str = ""
    delta_limit: float | None = None
    binding: str | None = None

    @property
    def name(self) -> str:
        """The name of the rule, with which a conflict is accepted."""
        return self.rule

    def __repr__(self) -> str:
        return status_line(self)

    def _repr_html_(self) -> str:
        return html_line(status_line(self))

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> RemoteRuleStatus:
        """Decode one entry of `budgets` or `conflicts`. Raise `KeyError` if a key is missing."""
        return RemoteRuleStatus(
            rule=RuleName(payload["rule"]),
            unit=payload["unit"],
            policies=tuple(payload["policies"]),
            budget=payload["budget"],
            spent=payload["spent"],
            holds=payload["holds"],
            spenders=tuple(payload["spent-most"]),
            location=payload["at"],
            source=payload["source"],
            delta_limit=payload.get("leaks", {}).get("limit"),
            binding=payload.get("binding"),
        )


# The calls


def submit_call(release: Release | Body, by: str, *, reserve: bool) -> ApiCall[Decision]:
    """Build the call that decides a release and charges it or reserves its cost.

    Raise `ReleaseRejected` (R009) if the release states another author than `by`.
    """
    body = authored_body(release, by)
    if reserve:
        body["mode"] = "reserve"
    return release_call("/v1/releases", Decision.from_json, body)


def check_call(release: Release | Body) -> ApiCall[Decision]:
    """Build the call that decides a release without writing to the ledger."""
    return release_call("/v1/check", Decision.from_json, release_body(release))


def release_call(
    path: str, decode: Callable[[Mapping[str, Any]], T], body: Mapping[str, Any]
) -> ApiCall[T]:
    """Build a call whose body has releases."""
    return ApiCall("POST", path, decode, encode_canonical(body), malformed=MalformedRelease)


def commit_call(release: str, used: Release | Body | None) -> ApiCall[int]:
    """Build the call that ends a reservation as used."""
    body = {} if used is None else {"used": release_body(used)}
    return _end_call(release, "commit", body, "committed")


def void_call(release: str, because: str) -> ApiCall[int]:
    """Build the call that ends a reservation as unused."""
    return _end_call(release, "void", {"because": because}, "voided")


def _end_call(release: str, action: str, body: Mapping[str, Any], status: str) -> ApiCall[int]:
    return ApiCall(
        "POST",
        f"{_release_path(release)}/{action}",
        _decode_sequence,
        encode_canonical(body),
        ends=EndOfReservation(release, status),
        malformed=MalformedRelease,
    )


def show_call(release: str) -> ApiCall[dict[str, Any]]:
    """Build the call that returns status, body and decision of a release."""
    return ApiCall("GET", _release_path(release), dict)


def import_call(release: Release | Body, because: str, released: str | None) -> ApiCall[int]:
    """Build the call that charges a release after the fact; `released` is its day."""
    body = release_body(release)

    def decode(payload: Mapping[str, Any]) -> int:
        (record,) = payload["imported"].values()
        return int(record)

    request: dict[str, Any] = {"releases": [body], "because": because}
    if released is not None:
        request["released"] = {str(body.get("release", "")): released}
    return release_call("/v1/releases:import", decode, request)


def allocate_call(
    releases: Sequence[Release | Body], strategy: str, *, dry_run: bool
) -> ApiCall[dict[str, Any]]:
    """Build the call that runs an allocation round."""
    bodies = [release_body(release) for release in releases]
    request = {"releases": bodies, "strategy": strategy, "dry-run": dry_run}
    return release_call("/v1/allocate", dict, request)


def apply_call(
    policy: CompiledPolicy | str | Path, accept: Sequence[str] | str, because: str
) -> ApiCall[int]:
    """Build the call that activates a policy set; a text `accept` is one name."""
    names = [accept] if isinstance(accept, str) else list(accept)
    request = {"sources": _policy_sources(policy), "accept": names, "because": because}
    return ApiCall("POST", "/v1/policies:apply", _decode_sequence, encode_canonical(request))


def plan_call(policy: CompiledPolicy | str | Path, *, replay: bool) -> ApiCall[dict[str, Any]]:
    """Build the call that compares a policy set with the active one."""
    request = {"sources": _policy_sources(policy), "replay": replay}
    return ApiCall("POST", "/v1/policies:plan", dict, encode_canonical(request))


def budgets_call(
    at: Mapping[str, str] | None, pruned: bool, maximum: int
) -> ApiCall[Budgets[RemoteRuleStatus]]:
    """Build the call that returns the status of at most `maximum` rules, most used first."""
    query = [("at", f"{name}={value}") for name, value in (at or {}).items()]
    query += [*([("all", "true")] if pruned else []), ("limit", str(maximum))]
    return ApiCall("GET", "/v1/budgets", _decode_budgets, query=query)


def proposals_call() -> ApiCall[list[dict[str, Any]]]:
    """Build the call that returns the open proposals."""
    return ApiCall("GET", "/v1/proposals", _decode_proposals)


def answer_call(proposal: int, because: str, *, approve: bool) -> ApiCall[Decision | int]:
    """Build the call that approves or rejects a proposal."""
    path = f"/v1/proposals/{proposal}/{'approve' if approve else 'reject'}"
    return ApiCall("POST", path, _decode_answer, encode_canonical({"because": because}))


def records_call(behind: int, maximum: int) -> ApiCall[list[Record]]:
    """Build the call that returns at most `maximum` records after record number `behind`."""
    query = [("behind", str(behind)), ("limit", str(maximum))]
    return ApiCall("GET", "/v1/log/records", _decode_records, query=query)


def whoami_call() -> ApiCall[dict[str, Any]]:
    """Build the call that returns name, roles and grants of the caller."""
    return ApiCall("GET", "/v1/who", dict)


# Parts of requests


def release_body(release: Release | Body) -> dict[str, Any]:
    """Return the body of a release as plain values, in a new dictionary."""
    from dpolicy.releases.python.python_values import to_plain_body

    values = getattr(release, "body", release)
    if not isinstance(values, Mapping):
        raise InvalidValue("M004", f"a release is a mapping, not `{type(release).__name__}`")
    body: dict[str, Any] = to_plain_body(values)
    return body


def authored_body(release: Release | Body, by: str) -> dict[str, Any]:
    """Return the body of a release with `by` as its author, unless `by` is empty.

    Raise `ReleaseRejected` (R009) if the release states another author.
    """
    body = release_body(release)
    if by and (body.get("by") or by) != by:
        raise ReleaseRejected([author_problem(str(body["by"]), by)])
    return {**body, "by": by} if by else body


def _release_path(release: str) -> str:
    return f"/v1/releases/{quote(release, safe='')}"


def _policy_sources(policy: CompiledPolicy | str | Path) -> list[dict[str, str]]:
    """Return name and text of each file of a policy set; read them if `policy` is a path."""
    from dpolicy.policy.parser import read_sources
    from dpolicy.text.source_files import to_path

    stated = getattr(policy, "sources", None)  # those of a compiled policy
    sources = read_sources(to_path(policy)) if stated is None else stated
    return [{"name": source.name, "text": source.text} for source in sources]


# Values of responses


def _decode_sequence(payload: Mapping[str, Any]) -> int:
    return int(payload["sequence"])


def _decode_budgets(payload: Mapping[str, Any]) -> Budgets[RemoteRuleStatus]:
    return Budgets(RemoteRuleStatus.from_json(entry) for entry in payload["budgets"])


def _decode_proposals(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(payload["proposals"])


def _decode_answer(payload: Mapping[str, Any]) -> Decision | int:
    decision = payload["decision"]
    return Decision.from_json(decision) if decision else _decode_sequence(payload)


def _decode_records(payload: Mapping[str, Any]) -> list[Record]:
    return [
        Record(entry["sequence"], bytes.fromhex(entry["hash"]), entry["payload"].encode("utf-8"))
        for entry in payload["records"]
    ]


def parse_response(call: ApiCall[T], status: int, content: bytes) -> T:
    """Return the value of a response. Raise the error that a local decision point would raise, and
    `LedgerUnavailable` if the response is not one of the API.
    """
    try:
        payload = json.loads(content)
        if status == 200:
            value = call.decode(payload)
            return _mark_replayed(value) if payload.get("replayed", False) else value
        if status == 202:
            raise ApprovalRequired(int(payload["proposal"]))
        error = error_from_problem(payload["code"], payload["detail"], payload)
        if isinstance(error, PolicyRejected):
            error = call.malformed(error.diagnostics)
    except (ValueError, KeyError, TypeError, AttributeError):
        message = f"the server sent status {status} with a response that is not from this API"
        raise LedgerUnavailable(message) from None
    raise error


def _mark_replayed(value: Any) -> Any:
    return value.as_replay() if isinstance(value, Decision) else value


def error_from_problem(code: str, detail: str, payload: Mapping[str, Any]) -> DPolicyError:
    """Return the error for a problem; `payload` holds the further members of the problem."""
    match code:
        case "invalid":
            diagnostics = payload.get("diagnostics", ())
            return PolicyRejected([_decode_diagnostic(entry) for entry in diagnostics])
        case "release-rejected" | "invalid-value":
            problems = payload.get("problems", ())
            return ReleaseRejected([InvalidValue(p["code"], p["message"]) for p in problems])
        case "conflicting":
            exceeded = payload.get("conflicts", ())
            redefined = payload.get("redefinitions", ())
            return PolicyConflicts(
                [
                    *(Redefinition.from_json(entry) for entry in redefined),
                    *(RemoteRuleStatus.from_json(entry) for entry in exceeded),
                ]
            )
        case "ledger-unavailable" | "access-unreadable":
            return LedgerUnavailable(detail)
        case "ledger-damaged":
            return LedgerDamaged(detail)
    if code in _OPERATION_CODES:
        return OperationRejected(detail, code)
    return RequestRefused(code, detail)


def _decode_diagnostic(payload: Mapping[str, Any]) -> Diagnostic:
    from dpolicy.text.diagnostics import Diagnostic
    from dpolicy.text.spans import Source, Span

    line, column = payload["line"], payload["column"]
    span = Span(Source(payload["file"], ""), line, column, line, column + 1)
    return Diagnostic(payload["code"], payload["message"], span, payload["help"])
