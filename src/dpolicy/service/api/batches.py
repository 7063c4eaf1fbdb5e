"""Endpoints for several releases: import of past releases, and allocation rounds."""

from __future__ import annotations

from dpolicy.allocation.round import allocate
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import RequestRefused
from dpolicy.releases.release_format import DateShape
from dpolicy.service.auth.authorization import (
    author_name,
    authorize_releases,
    ensure_labels_granted,
)
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.release_shapes import ReleaseShape
from dpolicy.text.shapes import (
    BooleanShape,
    ChoiceShape,
    ListShape,
    MapShape,
    RecordField,
    RecordShape,
    TextShape,
)

#: Maximum number of releases in one request.
MAX_BATCH_RELEASES = 1_000

_RELEASES = RecordField(
    ListShape(ReleaseShape(), "a list of releases", least=1, most=MAX_BATCH_RELEASES),
    "",
    required=True,
)
_IMPORT_BODY = RecordShape(
    "past releases",
    {
        "releases": _RELEASES,
        "because": RecordField(TextShape(), "reason, stored in the ledger", default=""),
        "released": RecordField(
            MapShape(DateShape(), "a map of days"),
            "days on which releases happened, by their ids",
            default={},
        ),
    },
    lambda values, _: values,
)
_ALLOCATE_BODY = RecordShape(
    "an allocation round",
    {
        "releases": _RELEASES,
        "strategy": RecordField(ChoiceShape(tuple(STRATEGIES), "a strategy"), default="efficient"),
        "dry-run": RecordField(
            BooleanShape(), "select without writing to the ledger", default=False
        ),
    },
    lambda values, _: values,
)


def handle_import(call: ApiRequest) -> ApiResponse:
    """Record and charge past releases. If one of them is rejected, none is charged."""
    releases, because = call.body["releases"], str(call.body["because"])
    point, by = call.decision_point, author_name(call)
    enforced = point.enforced_policy
    ensure_labels_granted(call, releases, enforced)
    policy = enforced.policy if enforced else None
    days = {str(release): day.isoformat() for release, day in call.body["released"].items()}
    records = point.import_many(releases, because, by, released=days, expected_policy=policy)
    numbers = {release.id: record for release, record in zip(releases, records, strict=True)}
    statuses = call.decision_point.budgets()
    exceeded = [status.as_json() for status in statuses if not status.holds]
    return ApiResponse({"imported": numbers, "exceeded": exceeded})


def handle_allocate(call: ApiRequest) -> ApiResponse:
    """Run an allocation round: select releases and charge the selected ones together."""
    releases, strategy = call.body["releases"], str(call.body["strategy"])
    dry_run = call.body["dry-run"]
    authorization = authorize_releases(call, releases)
    if authorization.needs_approval and not dry_run:
        raise RequestRefused(
            "forbidden", "a release that needs approval cannot take part in an allocation round"
        )
    result = allocate(
        call.decision_point,
        releases,
        strategy,
        author_name(call),
        dry_run=dry_run,
        expected_policy=authorization.expected_policy,
    )
    return ApiResponse({"strategy": strategy, "dry-run": dry_run, **result.as_json()})


_OFFICER = frozenset({Role.OFFICER})
_PROBLEMS = (
    *("invalid", "release-rejected", "invalid-value", "misused", "id-taken", "no-policy"),
    *("label-not-granted", "pending", "already-rejected", "policy-changed"),
)

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases:import",
        "import",
        "Record and charge past releases.",
        handle_import,
        _OFFICER,
        "ImportedReleases",
        _IMPORT_BODY,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "POST",
        "/v1/allocate",
        "allocate",
        "Run an allocation round.",
        handle_allocate,
        _OFFICER,
        "AllocationResult",
        _ALLOCATE_BODY,
        problems=(*_PROBLEMS, "already-voided", "already-imported"),
    ),
)
