"""Endpoints for the active policy, its rules, their balances, and questions about the ledger.

Questions read the state of the readers, so they never wait for the writer. An analyst may ask about
all authors only in the scopes of rules, whose balances every caller sees: an expression can read
the author, and a date isolates single releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import islice
from typing import Any

from dpolicy.errors import RequestRefused
from dpolicy.ledger.events import event_author
from dpolicy.pdp.rule_status import RuleStatus, rank_by_use, rule_statuses
from dpolicy.pdp.spending.pruned_rules import pruned_rule_statuses
from dpolicy.pdp.spending.spending import Spending
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.rule import Rule, rule_to_json
from dpolicy.service.auth.authorization import (
    ensure_owner,
    requires_approval,
    with_caller_as_author,
)
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.auth.redaction import visible_author
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter
from dpolicy.service.http.release_shapes import ReleaseShape
from dpolicy.text.shapes import (
    BooleanShape,
    ListShape,
    MapShape,
    NumberShape,
    RecordField,
    RecordShape,
    TextShape,
)


def handle_budgets(call: ApiRequest) -> ApiResponse:
    """Return budget and balance of each rule, most used first."""
    query, location = call.query, _parse_location(call.query["at"])
    has_filter = query["rule"] or query["policy"] or query["unit"]

    def matches(rule: Rule) -> bool:
        return _matches_query(rule, query)

    def statuses_at_location(state: LedgerState) -> list[RuleStatus]:
        region = None
        if location and state.enforced:
            region = state.enforced.space.parse_location(location)
        options = (region, matches if has_filter else None, query["limit"])
        statuses = rule_statuses(state, *options)
        if query["all"] == "true":
            tracked = call.decision_point.track_pruned_rules(state)
            statuses += pruned_rule_statuses(state, tracked, *options)
        return statuses

    statuses = call.decision_point.read_state(statuses_at_location)
    statuses.sort(key=rank_by_use)
    page = [status.as_json() for status in statuses[: query["limit"]]]
    return ApiResponse({"total": len(statuses), "budgets": page})


def _matches_query(rule: Rule, query: Mapping[str, Any]) -> bool:
    return (
        query["policy"] in (None, rule.base.policy)
        and query["unit"] in (None, rule.unit)
        and query["rule"] in rule.name
    )


def _parse_location(texts: list[str]) -> dict[str, str]:
    """Parse texts such as `country=CH`. Raise `RequestRefused` for a text without name or value."""
    location = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise RequestRefused(
                "bad-request", f"`at={text[:40]}` must be a location such as country=CH"
            )
        location[name] = value
    return location


def handle_rules(call: ApiRequest) -> ApiResponse:
    """Return the kept rules, and with `all` also the pruned ones."""
    policy, query = call.decision_point.policy, call.query
    if policy is None:
        return ApiResponse({"total": 0, "kept": 0, "rules": []})
    matching = (
        rule_to_json(rule, witness)
        for rule, witness in policy.all_rules
        if (query["all"] == "true" or witness is None) and _matches_query(rule, query)
    )
    page = list(islice(matching, query["limit"]))
    return ApiResponse({"total": policy.rule_count, "kept": policy.kept_count, "rules": page})


def handle_policy(call: ApiRequest) -> ApiResponse:
    """Return the texts and warnings of the active policy."""
    policy, record = call.decision_point.read_entries(
        lambda state: (state.policy, state.policy_record)
    )
    if policy is None:
        raise RequestRefused("not-found", "there is no active policy")
    return ApiResponse(
        {
            "digest": policy.digest,
            "sequence": record,
            "total": policy.rule_count,
            "kept": policy.kept_count,
            "sources": [{"name": s.name, "text": s.text} for s in policy.sources],
            "diagnostics": [warning.as_json() for warning in policy.warnings],
        }
    )


def handle_spent(call: ApiRequest) -> ApiResponse:
    """Return what recorded releases spent in a scope, at the place with the largest ε at δ."""
    return ApiResponse(find_spending(call).as_json())


def find_spending(call: ApiRequest) -> Spending:
    """Return the answer to the question in the body, as far as the caller may see it."""
    question = dict(call.body)
    _ensure_own_question(call, question)
    texts = (question[key] for key in ("when", "rule", "unit", "at", "since", "by", "delta"))
    author, limit = visible_author(call), question["limit"]
    return call.decision_point.spent_as_seen_by(author, *texts, limit=limit)


def _ensure_own_question(call: ApiRequest, question: Mapping[str, Any]) -> None:
    """Raise `RequestRefused` if a question shows an analyst what others released."""
    if call.access.local or not call.principal.only_analyst:
        return
    name, authors = call.principal.name, question["by"]
    if authors is not None and set(authors) != {name}:
        raise RequestRefused("forbidden", f"`by` names other authors, but the caller is `{name}`")
    if authors is None and (question["when"] is not None or question["since"] is not None):
        raise RequestRefused(
            "forbidden", f"an analyst needs `by: [{name}]` with `when` or `since`; or state `rule`"
        )


def handle_headroom(call: ApiRequest) -> ApiResponse:
    """Return how many more releases like a release would be allowed now."""
    content, recorded = call.body["release"], call.body["id"]
    if (content is None) == (recorded is None):
        raise RequestRefused("bad-request", "the body must have either `release` or `id`")
    if content is None:
        if call.principal.only_analyst:
            ensure_owner(call, event_author(call.decision_point.find_release(str(recorded))[1]))
        content = str(recorded)
    else:
        content = with_caller_as_author(call, content)
        requires_approval(call, [content])
    most_accurate = call.body["most-accurate"]
    headroom = call.decision_point.headroom(content, most_accurate=most_accurate)
    return ApiResponse(headroom.as_json())


_RULE_PARAMETERS = {
    "rule": QueryParameter("Text that the name of the rule contains.", default=""),
    "policy": QueryParameter("Base policy of the rules."),
    "unit": QueryParameter("Privacy unit of the rules."),
    "limit": QueryParameter(
        "Maximum number of rules.", integer=True, minimum=1, maximum=100_000, default=1_000
    ),
}
_LOCATION_PARAMETER = QueryParameter(
    "Location to report, such as country=CH or time=2026-10; repeatable.", repeatable=True
)
_ALL_PARAMETER = QueryParameter(
    "Whether to include pruned rules.", choices=("false", "true"), default="false"
)
#: Limits of one question: names, and releases that the response lists.
MAX_AUTHORS, MAX_LISTED_RELEASES = 100, 1_000

_SPENT_BODY = RecordShape(
    "a question",
    {
        "when": RecordField(TextShape(), "scope: a CEL expression; default: all releases"),
        "rule": RecordField(TextShape(), "scope: that of the rule with this name"),
        "unit": RecordField(TextShape(), "privacy unit; default: the unit of the rule"),
        "at": RecordField(
            MapShape(TextShape(), "a location", most=100), "location, such as country: CH"
        ),
        "since": RecordField(TextShape(), "first day of the releases, such as 2026-10-28"),
        "by": RecordField(
            ListShape(TextShape(), "a list of authors", least=1, most=MAX_AUTHORS), "authors"
        ),
        "delta": RecordField(
            NumberShape("a number from 0 to below 1", least=Fraction(0), below=Fraction(1)),
            "δ at which ε is computed; default: the δ of the rule or of the policy",
        ),
        "limit": RecordField(
            NumberShape(
                f"a whole number from 0 to {MAX_LISTED_RELEASES}",
                least=Fraction(0),
                most=Fraction(MAX_LISTED_RELEASES),
                whole=True,
            ),
            "maximum number of listed releases",
            default=100,
        ),
    },
    lambda values, _: _plain_question(values),
)
_HEADROOM_BODY = RecordShape(
    "a release and options",
    {
        "release": RecordField(ReleaseShape(), "release of the content; its id does not count"),
        "id": RecordField(TextShape(), "id of a recorded release of the content"),
        "most-accurate": RecordField(
            BooleanShape(), "search the version with the least noise that fits", default=False
        ),
    },
    lambda values, _: values,
)


def _plain_question(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a question with plain texts instead of located ones."""
    at, by = values["at"], values["by"]
    plain = {name: str(v) if isinstance(v, str) else v for name, v in values.items()}
    plain["at"] = None if at is None else {str(name): str(value) for name, value in at.items()}
    plain["by"] = None if by is None else tuple(map(str, by))
    return plain


_QUESTION_PROBLEMS = ("invalid", "invalid-value", "misused", "no-policy")

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/budgets",
        "budgets",
        "Budget and balance of each rule, most used first.",
        handle_budgets,
        EVERY_ROLE,
        "Budgets",
        query={**_RULE_PARAMETERS, "all": _ALL_PARAMETER, "at": _LOCATION_PARAMETER},
        problems=("misused",),
    ),
    Endpoint(
        "GET",
        "/v1/rules",
        "rules",
        "Rules of the active policy.",
        handle_rules,
        EVERY_ROLE,
        "Rules",
        query={**_RULE_PARAMETERS, "all": _ALL_PARAMETER},
    ),
    Endpoint(
        "GET",
        "/v1/policy",
        "policy",
        "Texts of the active policy.",
        handle_policy,
        EVERY_ROLE,
        "Policy",
        problems=("not-found",),
    ),
    Endpoint(
        "POST",
        "/v1/spent",
        "spent",
        "Spending of recorded releases in any scope.",
        handle_spent,
        EVERY_ROLE,
        "Spending",
        _SPENT_BODY,
        problems=(*_QUESTION_PROBLEMS, "unknown-rule", "unknown-unit", "unit-required"),
    ),
    Endpoint(
        "POST",
        "/v1/headroom",
        "headroom",
        "Number of further releases of one content that would be allowed now.",
        handle_headroom,
        frozenset({Role.ANALYST, Role.OFFICER}),
        "Headroom",
        _HEADROOM_BODY,
        problems=(*_QUESTION_PROBLEMS, "release-rejected", "not-found", "label-not-granted"),
    ),
)
