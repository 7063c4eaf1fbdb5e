"""Many releases at once over HTTP: past ones that are charged, and rounds that compete."""

from __future__ import annotations

from dpolicy.allocation.round import allocate as allocated
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import RequestRefused
from dpolicy.service.api.releases import ReleaseShape
from dpolicy.service.auth.authorization import authorize_releases, claimed_inputs
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.text.shapes import (
    BooleanShape,
    ChoiceShape,
    ListShape,
    RecordField,
    RecordShape,
    TextShape,
)

#: Releases in one request.
MAX_BATCH_RELEASES = 1_000

_RELEASES = RecordField(
    ListShape(ReleaseShape(), "a list of releases", least=1, most=MAX_BATCH_RELEASES),
    "",
    required=True,
)
_IMPORT = RecordShape(
    "past releases",
    {"releases": _RELEASES, "because": RecordField(TextShape(), "why, for the record", default="")},
    lambda values, _: values,
)
_ROUND = RecordShape(
    "a round",
    {
        "releases": _RELEASES,
        "strategy": RecordField(ChoiceShape(tuple(STRATEGIES), "a strategy"), default="efficient"),
        "dry-run": RecordField(BooleanShape(), "choose, and write nothing", default=False),
    },
    lambda values, _: values,
)


def handle_import(call: ApiRequest) -> ApiResponse:
    """Charge releases that have already happened; all of them can be read, or none is charged."""
    releases, because = call.body["releases"], str(call.body["because"])
    enforced, by = call.decision_point.enforced_policy, call.principal.name
    claimed_inputs(call, releases, enforced)
    policy = enforced.policy if enforced else None
    numbers = {
        r.id: call.decision_point.import_past(r, because, by, expected_policy=policy)
        for r in releases
    }
    exceeded = [b.as_json() for b in call.decision_point.budgets() if not b.holds]
    return ApiResponse({"imported": numbers, "exceeded": exceeded})


def handle_allocate(call: ApiRequest) -> ApiResponse:
    """Choose among releases, and charge the winners together."""
    releases, strategy = call.body["releases"], str(call.body["strategy"])
    dry_run = call.body["dry-run"]
    second, policy = authorize_releases(call, releases)
    if second and not dry_run:
        raise RequestRefused(
            "forbidden", "a release that needs a second person cannot win in a round"
        )
    found = allocated(
        call.decision_point,
        releases,
        strategy,
        call.principal.name,
        dry_run=dry_run,
        expected_policy=policy,
    )
    return ApiResponse({"strategy": strategy, "dry-run": dry_run, **found.as_json()})


_OFFICER = frozenset({Role.OFFICER})
_PROBLEMS = (
    *("invalid", "release-rejected", "invalid-value", "misused", "id-taken", "no-policy"),
    *("label-not-granted", "waiting", "already-rejected", "policy-changed"),
)

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases:import",
        "import",
        "Charge releases that have already happened.",
        handle_import,
        _OFFICER,
        "Imported",
        _IMPORT,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "POST",
        "/v1/allocate",
        "allocate",
        "Choose among releases and charge the winners.",
        handle_allocate,
        _OFFICER,
        "Allocated",
        _ROUND,
        problems=(*_PROBLEMS, "already-voided", "already-imported"),
    ),
)
