"""Releases over HTTP: asked for, checked, held, ended and looked up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dpolicy.errors import OperationRejected, RequestRefused
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import ReleaseDecided, ReleaseProposed, release_body_in
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.ledger_state import STATUSES, LedgerState, Proposal
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import RELEASE, release_from_node
from dpolicy.service.auth.authorization import (
    authorize_releases,
    ensure_owner,
    requires_approval,
    with_caller_as_author,
)
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter
from dpolicy.text.shapes import INVALID, ChoiceShape, RecordField, RecordShape, TextShape
from dpolicy.text.yaml_reader import MapNode, Report, TextNode

#: What `mode` can be: charge at once, or hold until `commit` or `void`.
MODES = ("commit", "reserve")


@dataclass(frozen=True, slots=True)
class ReleaseShape:
    """A release as it is written in a file."""

    title: str = "a release"

    def read(self, node: TextNode, report: Report) -> Any:
        """The release."""
        return release_from_node(node, report) or INVALID

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""
        return RELEASE.schema()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A release, and beside its own keys the `mode` in which it is asked for."""

    title: str = "a release with its `mode`"

    def read(self, node: TextNode, report: Report) -> Any:
        mode: Any = MODES[0]
        if isinstance(node, MapNode) and (said := node.get("mode")) is not None:
            mode = ChoiceShape(MODES, "a mode").read(said, report)
            others = tuple((key, value) for key, value in node.entries if key.text != "mode")
            node = MapNode(node.span, others)
        release = release_from_node(node, report)
        return INVALID if release is None or mode is INVALID else (release, str(mode))

    def schema(self) -> dict[str, Any]:
        release = RELEASE.schema()
        mode = {"enum": list(MODES), "default": MODES[0]}
        return {**release, "properties": {**release["properties"], "mode": mode}}


_USED = RecordShape(
    "what was run",
    {"used": RecordField(ReleaseShape(), "what was run, if that was less")},
    lambda v, _: v["used"],
)
BECAUSE_FIELD = RecordShape(
    "a reason",
    {"because": RecordField(TextShape(), "why, for the record", default="")},
    lambda v, _: str(v["because"]),
)


def handle_submit(call: ApiRequest) -> ApiResponse:
    """Decide a release, or let it wait."""
    asked, mode = call.body
    release, reserve = with_caller_as_author(call, asked), mode == "reserve"
    found = _decided(call, release, reserve)
    _check_mode(call, found, reserve)
    if isinstance(found, Proposal):
        call.metrics.decision("waiting")
        return proposal_response(found)
    call.metrics.decision("replayed" if found.replayed else "allow" if found.allowed else "deny")
    return ApiResponse(found.as_json())


def _decided(call: ApiRequest, release: Release, reserve: bool) -> Decision | Proposal:
    """What is decided under the policy by which it was judged whether this needs two persons."""
    by = call.principal.name
    second, policy = authorize_releases(call, [release])
    point = call.decision_point
    try:
        if second:
            return point.propose(release, by, reserve=reserve, expected_policy=policy)
        if reserve:
            return point.reserve(release, by, expected_policy=policy)
        return point.submit(release, by, expected_policy=policy)
    except OperationRejected as error:
        if error.code != "policy-changed":
            raise
    return _decided(call, release, reserve)


def _check_mode(call: ApiRequest, outcome: Decision | Proposal, reserve: bool) -> None:
    """What was asked for in one mode is not given back in the other: a reservation can be voided,
    so nobody may be told that it was charged. What was denied is the same in both.
    """
    if isinstance(outcome, Decision) and not (outcome.replayed and outcome.allowed):
        return
    number = outcome.sequence if isinstance(outcome, Decision) else outcome.number
    match call.decision_point.event(number or 0):
        case ReleaseDecided(reserved=held) | ReleaseProposed(reserve=held) if held != reserve:
            before = MODES[held]
            raise OperationRejected(
                f"the id was used with `mode: {before}`: ask so again", "id-taken"
            )


def proposal_response(proposal: Proposal) -> ApiResponse:
    """The answer while a second person has to agree."""
    said = {"decision": "waiting", "proposal": proposal.number, "about": proposal.subject}
    return ApiResponse({**said, "kind": proposal.kind}, 202)


def handle_check(call: ApiRequest) -> ApiResponse:
    """Say what would be decided; nothing is written."""
    release = with_caller_as_author(call, call.body)
    second = requires_approval(call, [release])
    return ApiResponse(
        {**call.decision_point.check(release).as_json(), "needs-second-person": second}
    )


def handle_commit(call: ApiRequest) -> ApiResponse:
    """End a reservation that was used."""
    release, used = _own(call), None
    policy: ExpectedPolicy = ANY_POLICY
    if call.body is not None:
        used = with_caller_as_author(call, call.body)
        second, policy = authorize_releases(call, [used])
        if second:
            _check_approved(call, release)
        if call.access.approval.void:
            _check_whole(call, release, used)
            used = None
    sequence = call.decision_point.commit(
        release, used, call.principal.name, expected_policy=policy
    )
    return ApiResponse({"release": release, "status": "committed", "sequence": sequence})


def _check_whole(call: ApiRequest, release: str, used: Release) -> None:
    """Who says that next to nothing was run gives back as much as a void does."""
    reserved = release_body_in(
        call.decision_point.event(call.decision_point.find_release(release)[0].charge_record)
    )
    if encode_canonical(used.body) != encode_canonical(reserved):
        said = "to give back what was not run needs two persons: commit without `used`"
        raise RequestRefused("needs-second-person", f"{said}, or void it if nothing was run at all")


def _check_approved(call: ApiRequest, release: str) -> None:
    """What needs a second person cannot be run on a reservation that nobody else has seen."""
    proposal = call.decision_point.read_state(
        lambda state: state.newest_proposal("release", release)
    )
    if proposal is None or not proposal.approved:
        raise RequestRefused(
            "forbidden", "what was run needs a second person, and was reserved alone"
        )


def handle_void(call: ApiRequest) -> ApiResponse:
    """End a reservation that was not used, or let that wait."""
    release = _own(call)
    if call.access.approval.void:
        return proposal_response(
            call.decision_point.propose_void(release, call.body, call.principal.name)
        )
    sequence = call.decision_point.void(release, call.body, call.principal.name)
    return ApiResponse({"release": release, "status": "voided", "sequence": sequence})


def _own(call: ApiRequest) -> str:
    """The release of the path, which must be the caller's own."""
    release = call.path["release"]
    ensure_owner(call, getattr(call.decision_point.find_release(release)[1], "by", ""))
    return release


def handle_show_release(call: ApiRequest) -> ApiResponse:
    """How a release stands, what was asked, and what was decided."""
    release = call.path["release"]
    try:
        entry, event = call.decision_point.find_release(release)
    except OperationRejected:
        return _waiting_release(call, release)
    _check_sight(call, getattr(event, "by", ""))
    decision = json.loads(event.answer) if isinstance(event, ReleaseDecided) else None
    return ApiResponse(
        {
            "release": release,
            "status": entry.status,
            "sequence": entry.request_record,
            "charged-by": entry.charge_record,
            "by": getattr(event, "by", ""),
            "at": event.at,
            "body": release_body_in(call.decision_point.event(entry.charge_record)),
            "decision": decision,
        }
    )


def _waiting_release(call: ApiRequest, release: str) -> ApiResponse:
    proposal = call.decision_point.read_state(
        lambda state: state.newest_proposal("release", release)
    )
    event = None if proposal is None else call.decision_point.event(proposal.number)
    if proposal is None or not isinstance(event, ReleaseProposed):
        raise RequestRefused("not-found", f"there is no release `{release[:100]}`")
    _check_sight(call, event.by)
    return ApiResponse(
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


def _check_sight(call: ApiRequest, owner: str) -> None:
    if call.principal.only_analyst:
        ensure_owner(call, owner)


def handle_list_releases(call: ApiRequest) -> ApiResponse:
    """Releases, the newest first, in pages."""
    query, own = call.query, call.principal.only_analyst and not call.access.local
    by = call.principal.name if own else query["by"]

    def look(state: LedgerState) -> list[dict[str, Any]]:
        found = (
            {"release": name, "status": e.status, "sequence": e.request_record, "by": said_by}
            for name, e in reversed(state.entries.items())
            if (said_by := state.charge_groups[e.charge_group].by, True)
            and e.request_record < query["before"]
            and query["status"] in (None, e.status)
            and by in (None, said_by)
            and query["contains"] in name
        )
        return list(islice(found, query["limit"]))

    found = call.decision_point.read_state(look)
    more = found[-1]["sequence"] if len(found) == query["limit"] else None
    return ApiResponse({"releases": found, "before": more})


_LISTED = {
    "status": QueryParameter("Only those that stand so.", choices=STATUSES),
    "by": QueryParameter("Only those of a person."),
    "contains": QueryParameter("Only those whose id holds this text.", default=""),
    "before": QueryParameter("Only those recorded before this record.", whole=True, default=2**53),
    "limit": QueryParameter("At most so many.", whole=True, least=1, most=1_000, default=100),
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
        handle_submit,
        _ASK,
        "Asked",
        _Asked(),
        problems=(*_REFUSED, *_TAKEN, "label-not-granted"),
        may_need_approval=True,
    ),
    Endpoint(
        "POST",
        "/v1/check",
        "check",
        "What would be decided; nothing is written.",
        handle_check,
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
        handle_list_releases,
        EVERY_ROLE,
        "Releases",
        query=_LISTED,
    ),
    Endpoint(
        "POST",
        f"{_RELEASE}/commit",
        "commit",
        "End a reservation that was used.",
        handle_commit,
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
        handle_void,
        _END,
        "Voided",
        BECAUSE_FIELD,
        problems=("invalid", *_ENDED, "because-missing"),
        may_need_approval=True,
    ),
    Endpoint(
        "GET",
        _RELEASE,
        "release",
        "How a release stands and what was decided.",
        handle_show_release,
        EVERY_ROLE,
        "Release",
        problems=("not-found",),
    ),
)
