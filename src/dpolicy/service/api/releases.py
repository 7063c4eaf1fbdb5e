"""Endpoints for releases: submit, check, commit, void, show and list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from dpolicy.errors import OperationRejected, RequestRefused
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import (
    ReleaseDecided,
    ReleaseProposed,
    event_author,
    release_body_in,
    release_day,
)
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.pdp.state.release_archive import STATUSES
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.auth.authorization import (
    author_name,
    authorize_releases,
    ensure_owner,
    requires_approval,
    with_caller_as_author,
)
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter
from dpolicy.service.http.release_shapes import MODES, ReleaseShape, SubmissionShape
from dpolicy.text.shapes import RecordField, RecordShape, TextShape

#: Number of times that a release is authorized and decided if the active policy keeps changing.
MAX_DECISION_ATTEMPTS = 10


SUBMISSION = SubmissionShape()
_COMMIT_BODY = RecordShape(
    "a commit",
    {"used": RecordField(ReleaseShape(), "mechanisms that were run, if fewer than reserved")},
    lambda values, _: values["used"],
)
BECAUSE_BODY = RecordShape(
    "a reason",
    {"because": RecordField(TextShape(), "reason, stored in the ledger", default="")},
    lambda values, _: str(values["because"]),
)


def handle_submit(call: ApiRequest) -> ApiResponse:
    """Decide a release, or propose it if it needs approval."""
    submitted, mode = call.body
    release, reserve = with_caller_as_author(call, submitted), mode == "reserve"
    outcome = _decide_or_propose(call, release, reserve)
    check_mode(call, outcome, reserve)
    count_outcome(call, outcome)
    if isinstance(outcome, Proposal):
        return proposal_response(outcome)
    return ApiResponse(outcome.as_json())


def count_outcome(call: ApiRequest, outcome: Decision | Proposal) -> None:
    """Count a decision or proposal in the metrics."""
    if isinstance(outcome, Proposal):
        call.metrics.decision("pending")
    elif outcome.replayed:
        call.metrics.decision("replayed")
    else:
        call.metrics.decision("allow" if outcome.allowed else "deny")


def _decide_or_propose(call: ApiRequest, release: Release, reserve: bool) -> Decision | Proposal:
    """Decide or propose a release under the policy that determined whether it needs approval.

    If the active policy changes in between, authorize the release again under the new policy, at
    most `MAX_DECISION_ATTEMPTS` times; then raise `OperationRejected` with code `policy-changed`.
    """
    point, by = call.decision_point, author_name(call)
    for _ in range(MAX_DECISION_ATTEMPTS):
        authorization = authorize_releases(call, [release])
        policy = authorization.expected_policy
        try:
            if authorization.needs_approval:
                return point.propose(release, by, reserve=reserve, expected_policy=policy)
            if reserve:
                return point.reserve(release, by, expected_policy=policy)
            return point.submit(release, by, expected_policy=policy)
        except OperationRejected as error:
            if error.code != "policy-changed":
                raise
    raise policy_keeps_changing_error()


def is_policy_changed(outcome: object) -> bool:
    """Return whether a release was not decided because another policy became active."""
    return isinstance(outcome, OperationRejected) and outcome.code == "policy-changed"


def policy_keeps_changing_error() -> OperationRejected:
    """Return the error for a request during which the active policy changed too often."""
    message = (
        f"the active policy changed {MAX_DECISION_ATTEMPTS} times during the request; retry it"
    )
    return OperationRejected(message, "policy-changed")


def check_mode(call: ApiRequest, outcome: Decision | Proposal, reserve: bool) -> None:
    """Raise `OperationRejected` if an earlier request used the id in the other mode.

    A reservation can be voided, so the server must not report it as charged. A denial is the same
    in both modes.
    """
    if isinstance(outcome, Decision) and not (outcome.replayed and outcome.allowed):
        return
    number = outcome.sequence if isinstance(outcome, Decision) else outcome.number
    match call.decision_point.event(number or 0):
        case ReleaseDecided(reserved=reserved) | ReleaseProposed(reserve=reserved):
            if reserved != reserve:
                before = MODES[reserved]
                raise OperationRejected(
                    f"this id was used with `mode: {before}`; retry with the same mode", "id-taken"
                )


def proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as a JSON object with the keys of the 202 response."""
    return {
        "decision": "pending",
        "proposal": proposal.number,
        "about": proposal.subject,
        "kind": proposal.kind,
    }


def proposal_response(proposal: Proposal) -> ApiResponse:
    """Return the 202 response for a request that needs approval."""
    return ApiResponse(proposal_to_json(proposal), 202)


def handle_check(call: ApiRequest) -> ApiResponse:
    """Return the decision that a submission would get, without writing to the ledger."""
    release = with_caller_as_author(call, call.body)
    needs_approval = requires_approval(call, [release])
    decision = call.decision_point.check(release).as_json()
    return ApiResponse({**decision, "needs-second-person": needs_approval})


def handle_commit(call: ApiRequest) -> ApiResponse:
    """End a reservation as used."""
    release, used = _find_own_release(call), None
    policy: ExpectedPolicy = ANY_POLICY
    if call.body is not None:
        used = with_caller_as_author(call, call.body)
        authorization = authorize_releases(call, [used])
        policy = authorization.expected_policy
        if authorization.needs_approval:
            _check_approved(call, release)
        if call.access.approval.void:
            _check_not_partial(call, release, used)
            used = None
    sequence = call.decision_point.commit(
        release, used, call.principal.name, expected_policy=policy
    )
    return ApiResponse({"release": release, "status": "committed", "sequence": sequence})


def _check_not_partial(call: ApiRequest, release: str, used: Release) -> None:
    """Reject a partial commit: it returns budget like a void, which needs two people."""
    entry, _ = call.decision_point.find_release(release)
    reserved = release_body_in(call.decision_point.event(entry.charge_record))
    if encode_canonical(used.body) != encode_canonical(reserved):
        raise RequestRefused(
            "needs-second-person",
            "a partial commit returns budget and needs a second approver; commit without `used`, "
            "or void the reservation if nothing was run",
        )


def _check_approved(call: ApiRequest, release: str) -> None:
    """Raise `RequestRefused` unless the reservation of a release was approved."""
    proposal = _newest_proposal(call, release)
    if proposal is None or not proposal.approved:
        raise RequestRefused(
            "forbidden", "the used release requires approval, but its reservation was not approved"
        )


def handle_void(call: ApiRequest) -> ApiResponse:
    """End a reservation as unused, or propose that if voids need approval."""
    release, by = _find_own_release(call), call.principal.name
    if call.access.approval.void:
        return proposal_response(call.decision_point.propose_void(release, call.body, by))
    sequence = call.decision_point.void(release, call.body, by)
    return ApiResponse({"release": release, "status": "voided", "sequence": sequence})


def _find_own_release(call: ApiRequest) -> str:
    """Return the release id in the path. Raise `RequestRefused` unless the caller may end it."""
    release = call.path["release"]
    ensure_owner(call, event_author(call.decision_point.find_release(release)[1]))
    return release


def handle_show_release(call: ApiRequest) -> ApiResponse:
    """Return status, author, body and decision of a release."""
    release = call.path["release"]
    try:
        entry, event = call.decision_point.find_release(release)
    except OperationRejected:
        return _show_proposed_release(call, release)
    _ensure_visible(call, event_author(event))
    decision = json.loads(event.answer) if isinstance(event, ReleaseDecided) else None
    return ApiResponse(
        {
            "release": release,
            "status": entry.status,
            "sequence": entry.request_record,
            "charged-by": entry.charge_record,
            "by": event_author(event),
            "at": event.at,
            "released": release_day(event),
            "body": release_body_in(call.decision_point.event(entry.charge_record)),
            "decision": decision,
        }
    )


def _show_proposed_release(call: ApiRequest, release: str) -> ApiResponse:
    """Return a release that has a proposal and no decision."""
    proposal = _newest_proposal(call, release)
    event = None if proposal is None else call.decision_point.event(proposal.number)
    if proposal is None or not isinstance(event, ReleaseProposed):
        raise RequestRefused("not-found", f"there is no release `{release[:100]}`")
    _ensure_visible(call, event.by)
    return ApiResponse(
        {
            "release": release,
            "status": "pending" if proposal.open else "rejected",
            "sequence": proposal.number,
            "charged-by": None,
            "by": event.by,
            "at": event.at,
            "released": None,
            "body": event.body,
            "decision": None,
        }
    )


def _newest_proposal(call: ApiRequest, release: str) -> Proposal | None:
    return call.decision_point.read_entries(
        lambda state: state.proposals.newest("release", release)
    )


def _ensure_visible(call: ApiRequest, owner: str) -> None:
    if call.principal.only_analyst:
        ensure_owner(call, owner)


def handle_list_releases(call: ApiRequest) -> ApiResponse:
    """Return one page of releases, newest first."""
    query = call.query
    own_only = call.principal.only_analyst and not call.access.local
    author = call.principal.name if own_only else query["by"]

    def matching(state: LedgerState) -> Iterator[dict[str, Any]]:
        for name, entry in reversed(state.entries.items()):
            by = state.charge_groups[entry.charge_group].by
            if (
                entry.request_record < query["before"]
                and query["status"] in (None, entry.status)
                and author in (None, by)
                and query["contains"] in name
            ):
                number = entry.request_record
                yield {"release": name, "status": entry.status, "sequence": number, "by": by}

    def first_page(state: LedgerState) -> list[dict[str, Any]]:
        return list(islice(matching(state), query["limit"]))

    page = call.decision_point.read_entries(first_page)
    next_before = page[-1]["sequence"] if len(page) == query["limit"] else None
    return ApiResponse({"releases": page, "before": next_before})


_LIST_PARAMETERS = {
    "status": QueryParameter("Status of the releases.", choices=STATUSES),
    "by": QueryParameter("Author of the releases."),
    "contains": QueryParameter("Text that the id contains.", default=""),
    "before": QueryParameter(
        "Record number; only releases recorded before it.", integer=True, default=2**53
    ),
    "limit": QueryParameter(
        "Maximum number of releases.", integer=True, minimum=1, maximum=1_000, default=100
    ),
}
SUBMITTERS = frozenset({Role.ANALYST})
_ENDERS = frozenset({Role.ANALYST, Role.OFFICER})
_REJECTED = ("invalid", "release-rejected", "invalid-value", "misused", "no-policy")
_ID_PROBLEMS = ("id-taken", "already-imported", "already-voided", "already-rejected", "pending")
_END_PROBLEMS = ("not-found", "not-reserved", "pending")
_RELEASE_PATH = "/v1/releases/{release:path}"

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases",
        "submit",
        "Decide a release and charge it.",
        handle_submit,
        SUBMITTERS,
        "SubmittedRelease",
        SUBMISSION,
        problems=(*_REJECTED, *_ID_PROBLEMS, "label-not-granted", "policy-changed"),
        may_need_approval=True,
    ),
    Endpoint(
        "POST",
        "/v1/check",
        "check",
        "Decide a release without writing to the ledger.",
        handle_check,
        _ENDERS,
        "CheckedRelease",
        ReleaseShape(),
        problems=(*_REJECTED, *_ID_PROBLEMS, "label-not-granted"),
    ),
    Endpoint(
        "GET",
        "/v1/releases",
        "releases",
        "List releases, newest first.",
        handle_list_releases,
        EVERY_ROLE,
        "Releases",
        query=_LIST_PARAMETERS,
    ),
    Endpoint(
        "POST",
        f"{_RELEASE_PATH}/commit",
        "commit",
        "End a reservation as used.",
        handle_commit,
        _ENDERS,
        "EndedReservation",
        _COMMIT_BODY,
        problems=(
            *(*_REJECTED, *_END_PROBLEMS, "more-than-reserved", "label-not-granted"),
            *("needs-second-person", "policy-changed"),
        ),
    ),
    Endpoint(
        "POST",
        f"{_RELEASE_PATH}/void",
        "void",
        "End a reservation as unused; nothing was computed from data.",
        handle_void,
        _ENDERS,
        "EndedReservation",
        BECAUSE_BODY,
        problems=("invalid", *_END_PROBLEMS, "because-missing"),
        may_need_approval=True,
    ),
    Endpoint(
        "GET",
        _RELEASE_PATH,
        "release",
        "Status, body and decision of a release.",
        handle_show_release,
        EVERY_ROLE,
        "Release",
        problems=("not-found",),
    ),
)
