"""Endpoints for the active policy, its rules and their balances."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from dpolicy.errors import RequestRefused
from dpolicy.pdp.rule_status import RuleStatus, rank_by_use, rule_statuses
from dpolicy.pdp.spending.pruned_rules import pruned_rule_statuses
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.rule import Rule, rule_to_json
from dpolicy.service.auth.principal import EVERY_ROLE
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter


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
)
