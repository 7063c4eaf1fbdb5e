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
    Conflicting,
    DPolicyError,
    InvalidValue,
    LedgerDamaged,
    LedgerUnavailable,
    Misused,
    PolicyRejected,
    Refused,
    ReleaseRejected,
    Waiting,
)
from dpolicy.language.diagnostics import Diagnostic
from dpolicy.language.parser import read_sources
from dpolicy.language.source import Source, Span
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import Record
from dpolicy.releases.body import Body, plain_body
from dpolicy.releases.decision import Decision, Shown
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy

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
class Ask(Generic[T]):
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
class Standing:
    """How one rule stands, as a service tells it."""

    rule: str
    unit: str
    policies: tuple[str, ...]
    budget: Mapping[str, Any] | str
    spent: Shown
    holds: bool
    spenders: tuple[str, ...] = ()
    at: Mapping[str, str | int] = field(default_factory=dict)
    source: str = ""

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Standing:
        """A standing from an answer."""
        return Standing(
            rule=said["rule"],
            unit=said["unit"],
            policies=tuple(said["policies"]),
            budget=said["budget"],
            spent=said["spent"],
            holds=said["holds"],
            spenders=tuple(said["spent-most"]),
            at=said["at"],
            source=said["source"],
        )


def submit(release: Release | Body, by: str, *, reserve: bool) -> Ask[Decision]:
    """Decide a release, and charge it or hold its cost."""
    mode = {"mode": "reserve"} if reserve else {}
    return Ask("POST", "/v1/releases", Decision.from_json, _body({**_plain(release, by), **mode}))


def check(release: Release | Body) -> Ask[Decision]:
    """What would be decided."""
    return Ask("POST", "/v1/check", Decision.from_json, _body(_plain(release)))


def commit(release: str, used: Release | Body | None) -> Ask[int]:
    """End a reservation that was used."""
    said = {} if used is None else {"used": _plain(used)}
    path = f"/v1/releases/{_quoted(release)}/commit"
    return Ask("POST", path, _sequence, _body(said), ended="committed")


def void(release: str, because: str) -> Ask[int]:
    """End a reservation that was not used."""
    path = f"/v1/releases/{_quoted(release)}/void"
    return Ask("POST", path, _sequence, _body({"because": because}), ended="voided")


def show(release: str) -> Ask[dict[str, Any]]:
    """How a release stands."""
    return Ask("GET", f"/v1/releases/{_quoted(release)}", dict)


def import_past(release: Release | Body, because: str) -> Ask[int]:
    """Charge what has already happened."""
    said = _plain(release)
    body = _body({"releases": [said], "because": because})
    return Ask("POST", "/v1/releases:import", lambda a: int(a["imported"][said["release"]]), body)


def allocate(
    releases: Sequence[Release | Body], strategy: str, *, dry_run: bool
) -> Ask[dict[str, Any]]:
    """Choose among releases."""
    said = {"releases": [_plain(r) for r in releases], "strategy": strategy, "dry-run": dry_run}
    return Ask("POST", "/v1/allocate", dict, _body(said))


def apply(policy: CompiledPolicy | str | Path, accept: Sequence[str], because: str) -> Ask[int]:
    """Put a policy in force."""
    said = {"sources": _sources(policy), "accept": list(accept), "because": because}
    return Ask("POST", "/v1/policies:apply", _sequence, _body(said))


def plan(policy: CompiledPolicy | str | Path, *, replay: bool) -> Ask[dict[str, Any]]:
    """What a candidate would change."""
    said = {"sources": _sources(policy), "replay": replay}
    return Ask("POST", "/v1/policies:plan", dict, _body(said))


def budgets(at: Mapping[str, str] | None, most: int) -> Ask[list[Standing]]:
    """What was spent of each budget, the fullest first."""
    query = [("at", f"{name}={value}") for name, value in (at or {}).items()]
    query.append(("limit", str(most)))
    return Ask("GET", "/v1/budgets", _standings, query=query)


def proposals() -> Ask[list[dict[str, Any]]]:
    """What waits for a second person."""
    return Ask("GET", "/v1/proposals", lambda answer: list(answer["proposals"]))


def answer(proposal: int, because: str, *, approve: bool) -> Ask[Decision | int]:
    """Approve or reject a proposal."""
    path = f"/v1/proposals/{proposal}/{'approve' if approve else 'reject'}"
    return Ask("POST", path, _answered, _body({"because": because}))


def records(behind: int, most: int) -> Ask[list[Record]]:
    """Records of the log behind a number."""
    query = [("behind", str(behind)), ("limit", str(most))]
    return Ask("GET", "/v1/log/records", _records, query=query)


def who() -> Ask[dict[str, Any]]:
    """Who the caller is."""
    return Ask("GET", "/v1/who", dict)


def _plain(release: Release | Body, by: str = "") -> dict[str, Any]:
    said: dict[str, Any] = plain_body(release.body if isinstance(release, Release) else release)
    return {**said, "by": by} if by else said


def _body(said: Mapping[str, Any]) -> bytes:
    return encode(said)


def _quoted(release: str) -> str:
    return quote(release, safe="")


def _sources(policy: CompiledPolicy | str | Path) -> list[dict[str, str]]:
    compiled = isinstance(policy, CompiledPolicy)
    sources = policy.sources if compiled else read_sources(Path(policy))  # type: ignore[union-attr,arg-type]
    return [{"name": source.name, "text": source.text} for source in sources]


def _sequence(said: Mapping[str, Any]) -> int:
    return int(said["sequence"])


def _standings(said: Mapping[str, Any]) -> list[Standing]:
    return [Standing.from_json(one) for one in said["budgets"]]


def _answered(said: Mapping[str, Any]) -> Decision | int:
    return Decision.from_json(said["decision"]) if said["decision"] else int(said["sequence"])


def _records(said: Mapping[str, Any]) -> list[Record]:
    return [
        Record(one["sequence"], bytes.fromhex(one["hash"]), one["payload"].encode("utf-8"))
        for one in said["records"]
    ]


def read_answer(ask: Ask[T], status: int, data: bytes) -> T:
    """The value of an answer. Raises what the library would have raised."""
    try:
        said = json.loads(data)
        if status == 200:
            replayed = said.get("replayed", False)
            value = ask.read(said)
            return _marked(value) if replayed else value
        if status == 202:
            raise Waiting(int(said["proposal"]))
        error = error_of(said["code"], said["detail"], said)
    except (ValueError, KeyError, TypeError, AttributeError):
        shown = f"the service answered with status {status} and nothing that can be read"
        raise LedgerUnavailable(shown) from None
    raise error


def _marked(value: Any) -> Any:
    return value.again() if isinstance(value, Decision) else value


def error_of(code: str, detail: str, said: Mapping[str, Any]) -> DPolicyError:
    """The error that a problem tells of."""
    match code:
        case "invalid":
            return PolicyRejected([_diagnostic(one) for one in said.get("diagnostics", ())])
        case "release-rejected" | "invalid-value":
            found = said.get("problems", ())
            return ReleaseRejected([InvalidValue(one["code"], one["message"]) for one in found])
        case "conflicting":
            return Conflicting([Standing.from_json(one) for one in said.get("conflicts", ())])
        case "ledger-unavailable" | "access-unreadable":
            return LedgerUnavailable(detail)
        case "ledger-damaged":
            return LedgerDamaged(detail)
    return Misused(detail, code) if code in _MISUSED else Refused(code, detail)


def _diagnostic(said: Mapping[str, Any]) -> Diagnostic:
    line, column = said["line"], said["column"]
    span = Span(Source(said["file"], ""), line, column, line, column + 1)
    return Diagnostic(said["code"], said["message"], span, said["help"])
