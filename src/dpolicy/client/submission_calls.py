"""Call that submits many independent releases in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpolicy.client.wire import ApiCall, authored_body, error_from_problem, release_call
from dpolicy.errors import ApprovalRequired, DPolicyError, MalformedRelease, PolicyRejected
from dpolicy.releases.decision import Decision

if TYPE_CHECKING:
    from dpolicy.releases.body import Body
    from dpolicy.releases.release import Release


def submit_many_call(
    releases: Sequence[Release | Body], by: str
) -> ApiCall[list[Decision | DPolicyError]]:
    """Build the call that decides each release as `submit` would.

    Raise `ReleaseRejected` (R009) if a release states another author than `by`.
    """
    request = {"releases": [authored_body(release, by) for release in releases]}
    return release_call("/v1/releases:submit-many", _decode_results, request)


def _decode_results(payload: Mapping[str, Any]) -> list[Decision | DPolicyError]:
    return [_decode_result(entry) for entry in payload["results"]]


def _decode_result(entry: Mapping[str, Any]) -> Decision | DPolicyError:
    if "code" in entry:
        error = error_from_problem(entry["code"], entry["detail"], entry)
        if isinstance(error, PolicyRejected):
            return MalformedRelease(error.diagnostics)
        return error
    if entry["decision"] == "pending":
        return ApprovalRequired(int(entry["proposal"]))
    decision = Decision.from_json(entry)
    return decision.as_replay() if entry["replayed"] else decision
