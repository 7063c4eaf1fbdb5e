"""Releases over HTTP: asked for, checked, held, ended and looked up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dpolicy.enforcement.state import STATUSES, Proposal, State
from dpolicy.errors import Misused, Refused
from dpolicy.language.release import RELEASE, release_from
from dpolicy.language.shape import INVALID, Choice, Field, Record, Text
from dpolicy.language.source import Map, Node, Report
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import ReleaseDecided, ReleaseProposed, body_of
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.service.endpoint import Answer, Call, Endpoint, Parameter
from dpolicy.service.permission import check_owner, in_own_name, judged, needs_second_person
from dpolicy.service.principal import EVERY_ROLE, Role

#: What `mode` can be: charge at once, or hold until `commit` or `void`.
MODES = ("commit", "reserve")


@dataclass(frozen=True, slots=True)
class ReleaseShape:
    """A release as it is written in a file."""

    title: str = "a release"

    def read(self, node: Node, report: Report) -> Any:
        """The release."""
        return release_from(node, report) or INVALID

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""
        return RELEASE.schema()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A release, and beside its own keys the `mode` in which it is asked for."""

    title: str = "a release with its `mode`"

    def read(self, node: Node, report: Report) -> Any:
        mode: Any = MODES[0]
        if isinstance(node, Map) and (said := node.get("mode")) is not None:
            mode = Choice(MODES, "a mode").read(said, report)
            others = tuple((key, value) for key, value in node.entries if key.text != "mode")
            node = Map(node.span, others)
        release = release_from(node, report)
        return INVALID if release is None or mode is INVALID else (release, str(mode))

    def schema(self) -> dict[str, Any]:
        release = RELEASE.schema()
        mode = {"enum": list(MODES), "default": MODES[0]}
        return {**release, "properties": {**release["properties"], "mode": mode}}


_USED = Record(
    "what was run",
    {"used": Field(ReleaseShape(), "what was run, if that was less")},
    lambda v, _: v["used"],
)
BECAUSE = Record(
    "a reason",
    {"because": Field(Text(), "why, for the record", default="")},
    lambda v, _: str(v["because"]),
)


def submit(call: Call) -> Answer:
    """Decide a release, or let it wait."""
    asked, mode = call.body
    release, reserve = in_own_name(call, asked), mode == "reserve"
    found = _decided(call, release, reserve)
    _check_mode(call, found, reserve)
    if isinstance(found, Proposal):
        call.metrics.decision("waiting")
        return waiting(found)
    call.metrics.decision("replayed" if found.replayed else "allow" if found.allowed else "deny")
    return Answer(found.as_json())


def _decided(call: Call, release: Release, reserve: bool) -> Decision | Proposal:
    """What is decided under the policy by which it was judged whether this needs two persons."""
    by = call.principal.name
    second, point = judged(call, [release])
    try:
        if second:
            return point.propose(release, by, reserve=reserve)
        return point.reserve(release, by) if reserve else point.submit(release, by)
    except Misused as error:
        if error.code != "policy-changed":
            raise
    return _decided(call, release, reserve)


def _check_mode(call: Call, found: Decision | Proposal, reserve: bool) -> None:
    """What was asked for in one mode is not given back in the other: a reservation can be voided,
    so nobody may be told that it was charged. What was denied is the same in both.
    """
    if isinstance(found, Decision) and not (found.replayed and found.allowed):
        return
    number = found.sequence if isinstance(found, Decision) else found.number
    match call.point.event(number or 0):
        case ReleaseDecided(reserved=held) | ReleaseProposed(reserve=held) if held != reserve:
            before = MODES[held]
            raise Misused(f"the id was used with `mode: {before}`: ask so again", "id-taken")


def waiting(proposal: Proposal) -> Answer:
    """The answer while a second person has to agree."""
    said = {"decision": "waiting", "proposal": proposal.number, "about": proposal.about}
    return Answer({**said, "kind": proposal.kind}, 202)


def check(call: Call) -> Answer:
    """Say what would be decided; nothing is written."""
    release = in_own_name(call, call.body)
    second = needs_second_person(call, [release])
    return Answer({**call.point.check(release).as_json(), "needs-second-person": second})


def commit(call: Call) -> Answer:
    """End a reservation that was used."""
    release, used, point = _own(call), None, call.point
    if call.body is not None:
        used = in_own_name(call, call.body)
        second, point = judged(call, [used])
        if second:
            _check_approved(call, release)
        if call.access.approval.void:
            _check_whole(call, release, used)
            used = None
    sequence = point.commit(release, used, call.principal.name)
    return Answer({"release": release, "status": "committed", "sequence": sequence})


def _check_whole(call: Call, release: str, used: Release) -> None:
    """Who says that next to nothing was run gives back as much as a void does."""
    reserved = body_of(call.point.event(call.point.recorded(release)[0].charged))
    if encode(used.body) != encode(reserved):
        said = "to give back what was not run needs two persons: commit without `used`"
        raise Refused("needs-second-person", f"{said}, or void it if nothing was run at all")


def _check_approved(call: Call, release: str) -> None:
    """What needs a second person cannot be run on a reservation that nobody else has seen."""
    proposal = call.point.consult(lambda state: state.proposal_of("release", release))
    if proposal is None or not proposal.approved:
        raise Refused("forbidden", "what was run needs a second person, and was reserved alone")


def void(call: Call) -> Answer:
    """End a reservation that was not used, or let that wait."""
    release = _own(call)
    if call.access.approval.void:
        return waiting(call.point.propose_void(release, call.body, call.principal.name))
    sequence = call.point.void(release, call.body, call.principal.name)
    return Answer({"release": release, "status": "voided", "sequence": sequence})


def _own(call: Call) -> str:
    """The release of the path, which must be the caller's own."""
    release = call.path["release"]
    check_owner(call, getattr(call.point.recorded(release)[1], "by", ""))
    return release


def show(call: Call) -> Answer:
    """How a release stands, what was asked, and what was decided."""
    release = call.path["release"]
    try:
        entry, event = call.point.recorded(release)
    except Misused:
        return _waiting_release(call, release)
    _check_sight(call, getattr(event, "by", ""))
    decision = json.loads(event.answer) if isinstance(event, ReleaseDecided) else None
    return Answer(
        {
            "release": release,
            "status": entry.status,
            "sequence": entry.asked,
            "charged-by": entry.charged,
            "by": getattr(event, "by", ""),
            "at": event.at,
            "body": body_of(call.point.event(entry.charged)),
            "decision": decision,
        }
    )


def _waiting_release(call: Call, release: str) -> Answer:
    proposal = call.point.consult(lambda state: state.proposal_of("release", release))
    event = None if proposal is None else call.point.event(proposal.number)
    if proposal is None or not isinstance(event, ReleaseProposed):
        raise Refused("not-found", f"there is no release `{release[:100]}`")
    _check_sight(call, event.by)
    return Answer(
        {
            "release": release,
            "status": "waiting" if proposal.open else "rejected",
            "sequence": proposal.number,
            "charged-by": None,
            "by": event.by,
            "at": event.at,
            "body": event.body,
            "decision": None,
        }
    )


def _check_sight(call: Call, owner: str) -> None:
    if call.principal.only_analyst:
        check_owner(call, owner)


def listed(call: Call) -> Answer:
    """Releases, the newest first, in pages."""
    query, own = call.query, call.principal.only_analyst and not call.access.local
    by = call.principal.name if own else query["by"]

    def look(state: State) -> list[dict[str, Any]]:
        found = (
            {"release": name, "status": e.status, "sequence": e.asked, "by": said_by}
            for name, e in reversed(state.entries.items())
            if (said_by := state.contents[e.content].by, True)
            and e.asked < query["before"]
            and query["status"] in (None, e.status)
            and by in (None, said_by)
            and query["contains"] in name
        )
        return list(islice(found, query["limit"]))

    found = call.point.consult(look)
    more = found[-1]["sequence"] if len(found) == query["limit"] else None
    return Answer({"releases": found, "before": more})


_LISTED = {
    "status": Parameter("Only those that stand so.", choices=STATUSES),
    "by": Parameter("Only those of a person."),
    "contains": Parameter("Only those whose id holds this text.", default=""),
    "before": Parameter("Only those recorded before this record.", whole=True, default=2**53),
    "limit": Parameter("At most so many.", whole=True, least=1, most=1_000, default=100),
}
_ASK = frozenset({Role.ANALYST})
_END = frozenset({Role.ANALYST, Role.OFFICER})
_REFUSED = ("invalid", "release-rejected", "invalid-value", "misused", "no-policy")
_TAKEN = ("id-taken", "already-imported", "already-voided", "already-rejected", "waiting")
_ENDED = ("not-found", "not-reserved", "waiting")
_RELEASE = "/v1/releases/{release:path}"

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases",
        "submit",
        "Decide a release and charge it.",
        submit,
        _ASK,
        "Asked",
        _Asked(),
        problems=(*_REFUSED, *_TAKEN, "label-not-granted"),
        waits=True,
    ),
    Endpoint(
        "POST",
        "/v1/check",
        "check",
        "What would be decided; nothing is written.",
        check,
        _END,
        "Checked",
        ReleaseShape(),
        problems=(*_REFUSED, *_TAKEN, "label-not-granted"),
    ),
    Endpoint(
        "GET",
        "/v1/releases",
        "releases",
        "Releases, the newest first.",
        listed,
        EVERY_ROLE,
        "Releases",
        query=_LISTED,
    ),
    Endpoint(
        "POST",
        f"{_RELEASE}/commit",
        "commit",
        "End a reservation that was used.",
        commit,
        _END,
        "Ended",
        _USED,
        problems=(
            *(*_REFUSED, *_ENDED, "more-than-reserved", "label-not-granted"),
            *("needs-second-person", "policy-changed"),
        ),
    ),
    Endpoint(
        "POST",
        f"{_RELEASE}/void",
        "void",
        "Give back a reservation: nothing was computed.",
        void,
        _END,
        "Voided",
        BECAUSE,
        problems=("invalid", *_ENDED, "because-missing"),
        waits=True,
    ),
    Endpoint(
        "GET",
        _RELEASE,
        "release",
        "How a release stands and what was decided.",
        show,
        EVERY_ROLE,
        "Release",
        problems=("not-found",),
    ),
)
