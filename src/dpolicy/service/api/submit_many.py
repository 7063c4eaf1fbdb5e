"""Endpoint for many independent releases in one request.

Each release is decided as if it were submitted alone, in the order of the request. The decisions
of releases that need no approval share one commit.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dpolicy.errors import (
    DPolicyError,
    OperationRejected,
)
from dpolicy.pdp.commands import Answer
from dpolicy.pdp.many_releases.batch_commands import LEDGER_ERRORS, Submission
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.api.releases import (
    MAX_DECISION_ATTEMPTS,
    SUBMITTERS,
    check_mode,
    count_outcome,
    is_policy_changed,
    policy_keeps_changing_error,
    proposal_to_json,
)
from dpolicy.service.auth.authorization import (
    Authorization,
    author_name,
    authorize_releases,
    with_caller_as_author,
)
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.problem_details import problem_from_error, problem_to_json
from dpolicy.service.http.release_shapes import ReleasesShape

#: Maximum number of releases in one request; one commit of the ledger holds them.
MAX_RELEASES = 256

#: Outcome of one release: a decision or its JSON text, a proposal if it needs approval, or an
#: error.
ReleaseOutcome = Answer | Proposal | DPolicyError


@dataclass(frozen=True, slots=True)
class _Submission:
    """A release and the result of its authorization."""

    release: Release
    authorization: Authorization

    @property
    def commit_key(self) -> Hashable:
        """Value that is equal for releases that one commit can decide; a proposal is alone."""
        policy = self.authorization.expected_policy
        return id(self) if self.authorization.needs_approval else (None, id(policy))


def handle_submit_many(call: ApiRequest) -> ApiResponse:
    """Decide each release, or propose it if it needs approval; return all results in order."""
    outcomes = _decide_each(call, call.body, MAX_DECISION_ATTEMPTS)
    results = [
        _result_to_json(call, item, outcome)
        for item, outcome in zip(call.body, outcomes, strict=True)
    ]
    return ApiResponse({"results": results})


def _decide_each(
    call: ApiRequest, items: Sequence[Release | DPolicyError], attempts: int
) -> list[ReleaseOutcome]:
    """Authorize and decide releases. If the active policy changes in between, start again, at most
    `attempts` times.
    """
    if attempts == 0:
        return [policy_keeps_changing_error() for _ in items]
    authorized = [_authorize(call, item) for item in items]
    outcomes: dict[int, ReleaseOutcome] = {
        number: item for number, item in enumerate(authorized) if isinstance(item, DPolicyError)
    }
    valid = [
        (number, item) for number, item in enumerate(authorized) if isinstance(item, _Submission)
    ]
    for _, group in groupby(valid, lambda entry: entry[1].commit_key):
        numbers, submissions = zip(*group, strict=True)
        decided = _write(call, submissions)
        if any(map(is_policy_changed, decided)):
            decided = _decide_each(call, [item.release for item in submissions], attempts - 1)
        outcomes.update(zip(numbers, decided, strict=True))
    return [outcomes[number] for number in range(len(items))]


def _authorize(call: ApiRequest, item: Release | DPolicyError) -> _Submission | DPolicyError:
    """Check author and labels of a release; return an error that concerns only this release."""
    if isinstance(item, DPolicyError):
        return item
    try:
        release = with_caller_as_author(call, item)
        return _Submission(release, authorize_releases(call, [release]))
    except LEDGER_ERRORS:
        raise
    except DPolicyError as error:
        return error


def _write(call: ApiRequest, submissions: Sequence[_Submission]) -> Sequence[ReleaseOutcome]:
    """Decide releases in one commit, or propose one release."""
    by, authorization = author_name(call), submissions[0].authorization
    try:
        if authorization.needs_approval:
            return [_propose(call, submissions[0], by)]
        return _submit(call, [item.release for item in submissions], by, authorization)
    except LEDGER_ERRORS:
        raise
    except DPolicyError as error:
        return [error for _ in submissions]


def _propose(call: ApiRequest, submission: _Submission, by: str) -> Decision | Proposal:
    policy = submission.authorization.expected_policy
    return call.decision_point.propose(submission.release, by, expected_policy=policy)


def _submit(
    call: ApiRequest, releases: Sequence[Release], by: str, authorization: Authorization
) -> list[ReleaseOutcome]:
    """Decide releases in one commit. A denial has no counter-offers, which are expensive."""
    point = call.decision_point
    submissions = [
        Submission(point.plan_request(release, by), by, authorization.expected_policy)
        for release in releases
    ]
    return [*point.decide_many(submissions)]


def _result_to_json(
    call: ApiRequest, item: Release | DPolicyError, outcome: ReleaseOutcome
) -> dict[str, Any]:
    """Return a decision, a pending proposal or a problem as a JSON object."""
    if isinstance(outcome, str):
        call.metrics.decision("allow")
        decision: dict[str, Any] = json.loads(outcome)
        return decision
    if not isinstance(outcome, DPolicyError):
        try:
            check_mode(call, outcome, reserve=False)
        except OperationRejected as error:
            outcome = error
    if isinstance(outcome, DPolicyError):
        code, detail, extra = problem_from_error(outcome)
        about = {"release": item.id} if isinstance(item, Release) else {}
        return problem_to_json(code, detail, {**extra, **about})
    count_outcome(call, outcome)
    return proposal_to_json(outcome) if isinstance(outcome, Proposal) else outcome.as_json()


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases:submit-many",
        "submit-many",
        "Decide many independent releases and charge them.",
        handle_submit_many,
        SUBMITTERS,
        "SubmittedReleases",
        ReleasesShape(MAX_RELEASES),
        problems=("invalid",),
    ),
)
