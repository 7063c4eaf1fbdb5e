"""Many releases at once over HTTP: past ones that are charged, and rounds that compete."""

from __future__ import annotations

from dpolicy.allocation.ledger import allocate as allocated
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import Refused
from dpolicy.language.shape import Choice, Field, Flag, ListOf, Record, Text
from dpolicy.service.endpoint import Answer, Call, Endpoint
from dpolicy.service.permission import claimed, judged
from dpolicy.service.principal import Role
from dpolicy.service.releases import ReleaseShape

#: Releases in one request.
MOST_RELEASES = 1_000

_RELEASES = Field(
    ListOf(ReleaseShape(), "a list of releases", least=1, most=MOST_RELEASES), "", required=True
)
_IMPORT = Record(
    "past releases",
    {"releases": _RELEASES, "because": Field(Text(), "why, for the record", default="")},
    lambda values, _: values,
)
_ROUND = Record(
    "a round",
    {
        "releases": _RELEASES,
        "strategy": Field(Choice(tuple(STRATEGIES), "a strategy"), default="efficient"),
        "dry-run": Field(Flag(), "choose, and write nothing", default=False),
    },
    lambda values, _: values,
)


def import_past(call: Call) -> Answer:
    """Charge releases that have already happened; all of them can be read, or none is charged."""
    releases, because = call.body["releases"], str(call.body["because"])
    policy = call.point.policy
    claimed(call, releases, policy)
    point, by = call.point.only_under(policy), call.principal.name
    numbers = {r.id: point.import_past(r, because, by) for r in releases}
    exceeded = [b.as_json() for b in call.point.budgets() if not b.holds]
    return Answer({"imported": numbers, "exceeded": exceeded})


def allocate(call: Call) -> Answer:
    """Choose among releases, and charge the winners together."""
    releases, strategy = call.body["releases"], str(call.body["strategy"])
    dry_run = call.body["dry-run"]
    second, point = judged(call, releases)
    if second and not dry_run:
        raise Refused("forbidden", "a release that needs a second person cannot win in a round")
    found = allocated(point, releases, strategy, call.principal.name, dry_run=dry_run)
    return Answer({"strategy": strategy, "dry-run": dry_run, **found.as_json()})


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
        import_past,
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
        allocate,
        _OFFICER,
        "Allocated",
        _ROUND,
        problems=(*_PROBLEMS, "already-voided", "already-imported"),
    ),
)
