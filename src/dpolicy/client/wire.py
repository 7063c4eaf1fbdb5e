"""Calls → requests of the HTTP API, and its answers → the values and errors of the library.

Pure: what is sent and how often is for `caller.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from dpolicy.errors import (
    ApprovalRequired,
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
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.chain import Record
from dpolicy.policy.parser import read_sources
from dpolicy.releases.body import Body, to_plain_body
from dpolicy.releases.decision import Decision, DisplayedLoss
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.yaml_reader import Source, Span

T = TypeVar("T")

#: What the library itself would have refused; everything else is for the service to say.
_MISUSED = frozenset(
    {
        "misused",
        "not-found",
        "id-taken",
        "because-missing",
        "more-than-reserved",
        "no-policy",
        "already-imported",
        "already-voided",
        "already-rejected",
        "already-answered",
        "waiting",
        "not-reserved",
        "policy-changed",
        "second-person",
    }
)


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request, and how its answer is read.

    `ended` is the status of a release that shows that an earlier attempt did get through.
    """

    method: str
    path: str
    read: Callable[[Mapping[str, Any]], T]
    body: bytes | None = None
    query: Sequence[tuple[str, str]] = ()
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class RemoteRuleStatus:
    """How one rule stands, as a service tells it."""

    rule: str
    unit: str
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    holds: bool
    spenders: tuple[str, ...] = ()
    at: Mapping[str, str | int] = field(default_factory=dict)
    source: str = ""

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> RemoteRuleStatus:
        """A standing from an answer."""
        return RemoteRuleStatus(
            rule=payload["rule"],
            unit=payload["unit"],
            policies=tuple(payload["policies"]),
            budget=payload["budget"],
            spent=payload["spent"],
            holds=payload["holds"],
            spenders=tuple(payload["spent-most"]),
            at=payload["at"],
            source=payload["source"],
        )


def submit_call(release: Release | Body, by: str, *, reserve: bool) -> ApiCall[Decision]:
    """Decide a release, and charge it or hold its cost."""
    mode = {"mode": "reserve"} if reserve else {}
    return ApiCall(
        "POST", "/v1/releases", Decision.from_json, _body({**_plain(release, by), **mode})
    )


def check_call(release: Release | Body) -> ApiCall[Decision]:
    """What would be decided."""
    return ApiCall("POST", "/v1/check", Decision.from_json, _body(_plain(release)))


def commit_call(release: str, used: Release | Body | None) -> ApiCall[int]:
    """End a reservation that was used."""
    said = {} if used is None else {"used": _plain(used)}
    path = f"/v1/releases/{_quoted(release)}/commit"
    return ApiCall("POST", path, _sequence, _body(said), ended="committed")


def void_call(release: str, because: str) -> ApiCall[int]:
    """End a reservation that was not used."""
    path = f"/v1/releases/{_quoted(release)}/void"
    return ApiCall("POST", path, _sequence, _body({"because": because}), ended="voided")


def show_call(release: str) -> ApiCall[dict[str, Any]]:
    """How a release stands."""
    return ApiCall("GET", f"/v1/releases/{_quoted(release)}", dict)


def import_call(release: Release | Body, because: str) -> ApiCall[int]:
    """Charge what has already happened."""
    said = _plain(release)
    body = _body({"releases": [said], "because": because})
    return ApiCall(
        "POST", "/v1/releases:import", lambda a: int(a["imported"][said["release"]]), body
    )


def allocate_call(
    releases: Sequence[Release | Body], strategy: str, *, dry_run: bool
) -> ApiCall[dict[str, Any]]:
    """Choose among releases."""
    said = {"releases": [_plain(r) for r in releases], "strategy": strategy, "dry-run": dry_run}
    return ApiCall("POST", "/v1/allocate", dict, _body(said))


def apply_call(
    policy: CompiledPolicy | str | Path, accept: Sequence[str], because: str
) -> ApiCall[int]:
    """Put a policy in force."""
    said = {"sources": _sources(policy), "accept": list(accept), "because": because}
    return ApiCall("POST", "/v1/policies:apply", _sequence, _body(said))


def plan_call(policy: CompiledPolicy | str | Path, *, replay: bool) -> ApiCall[dict[str, Any]]:
    """What a candidate would change."""
    said = {"sources": _sources(policy), "replay": replay}
    return ApiCall("POST", "/v1/policies:plan", dict, _body(said))


def budgets_call(at: Mapping[str, str] | None, most: int) -> ApiCall[list[RemoteRuleStatus]]:
    """What was spent of each budget, the fullest first."""
    query = [("at", f"{name}={value}") for name, value in (at or {}).items()]
    query.append(("limit", str(most)))
    return ApiCall("GET", "/v1/budgets", _standings, query=query)


def proposals() -> ApiCall[list[dict[str, Any]]]:
    """What waits for a second person."""
    return ApiCall("GET", "/v1/proposals", lambda answer: list(answer["proposals"]))


def answer_call(proposal: int, because: str, *, approve: bool) -> ApiCall[Decision | int]:
    """Approve or reject a proposal."""
    path = f"/v1/proposals/{proposal}/{'approve' if approve else 'reject'}"
    return ApiCall("POST", path, _answered, _body({"because": because}))


def records_call(behind: int, most: int) -> ApiCall[list[Record]]:
    """Records of the log behind a number."""
    query = [("behind", str(behind)), ("limit", str(most))]
    return ApiCall("GET", "/v1/log/records", _records, query=query)


def whoami_call() -> ApiCall[dict[str, Any]]:
    """Who the caller is."""
    return ApiCall("GET", "/v1/who", dict)


def _plain(release: Release | Body, by: str = "") -> dict[str, Any]:
    said: dict[str, Any] = to_plain_body(release.body if isinstance(release, Release) else release)
    return {**said, "by": by} if by else said


def _body(payload: Mapping[str, Any]) -> bytes:
    return encode_canonical(payload)


def _quoted(release: str) -> str:
    return quote(release, safe="")


def _sources(policy: CompiledPolicy | str | Path) -> list[dict[str, str]]:
    compiled = isinstance(policy, CompiledPolicy)
    sources = policy.sources if compiled else read_sources(Path(policy))  # type: ignore[union-attr,arg-type]
    return [{"name": source.name, "text": source.text} for source in sources]


def _sequence(payload: Mapping[str, Any]) -> int:
    return int(payload["sequence"])


def _standings(payload: Mapping[str, Any]) -> list[RemoteRuleStatus]:
    return [RemoteRuleStatus.from_json(one) for one in payload["budgets"]]


def _answered(payload: Mapping[str, Any]) -> Decision | int:
    return (
        Decision.from_json(payload["decision"]) if payload["decision"] else int(payload["sequence"])
    )


def _records(payload: Mapping[str, Any]) -> list[Record]:
    return [
        Record(one["sequence"], bytes.fromhex(one["hash"]), one["payload"].encode("utf-8"))
        for one in payload["records"]
    ]


def parse_response(ask: ApiCall[T], status: int, data: bytes) -> T:
    """The value of an answer. Raises what the library would have raised."""
    try:
        said = json.loads(data)
        if status == 200:
            replayed = said.get("replayed", False)
            value = ask.read(said)
            return _marked(value) if replayed else value
        if status == 202:
            raise ApprovalRequired(int(said["proposal"]))
        error = error_from_problem(said["code"], said["detail"], said)
    except (ValueError, KeyError, TypeError, AttributeError):
        shown = f"the service answered with status {status} and nothing that can be read"
        raise LedgerUnavailable(shown) from None
    raise error


def _marked(value: Any) -> Any:
    return value.as_replay() if isinstance(value, Decision) else value


def error_from_problem(code: str, detail: str, payload: Mapping[str, Any]) -> DPolicyError:
    """The error that a problem tells of."""
    match code:
        case "invalid":
            return PolicyRejected([_diagnostic(one) for one in payload.get("diagnostics", ())])
        case "release-rejected" | "invalid-value":
            found = payload.get("problems", ())
            return ReleaseRejected([InvalidValue(one["code"], one["message"]) for one in found])
        case "conflicting":
            return PolicyConflicts(
                [RemoteRuleStatus.from_json(one) for one in payload.get("conflicts", ())]
            )
        case "ledger-unavailable" | "access-unreadable":
            return LedgerUnavailable(detail)
        case "ledger-damaged":
            return LedgerDamaged(detail)
    return OperationRejected(detail, code) if code in _MISUSED else RequestRefused(code, detail)


def _diagnostic(payload: Mapping[str, Any]) -> Diagnostic:
    line, column = payload["line"], payload["column"]
    span = Span(Source(payload["file"], ""), line, column, line, column + 1)
    return Diagnostic(payload["code"], payload["message"], span, payload["help"])
