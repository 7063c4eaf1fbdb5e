"""The policy in force, its rules and what they have spent, over HTTP."""

from __future__ import annotations

from itertools import islice

from dpolicy.errors import RequestRefused
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses, used_share
from dpolicy.rules.rule import Rule, rule_to_json
from dpolicy.service.auth.principal import EVERY_ROLE
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter


def handle_budgets(call: ApiRequest) -> ApiResponse:
    """What each rule has spent, the fullest first."""
    query, at = call.query, _place(call.query["at"])
    filtered = query["rule"] or query["policy"] or query["unit"]

    def wanted(rule: Rule) -> bool:
        return (
            query["policy"] in (None, rule.base.policy)
            and query["unit"] in (None, rule.unit)
            and query["rule"] in rule.name
        )

    def look(state: LedgerState) -> list[RuleStatus]:
        place = state.enforced.space.parse_location(at) if at and state.enforced else None
        return rule_statuses(state, place, wanted if filtered else None, query["limit"])

    found = call.decision_point.read_state(look)
    found.sort(key=lambda balance: -float(used_share(balance) or 0))
    told = found[: query["limit"]]
    return ApiResponse({"total": len(found), "budgets": [balance.as_json() for balance in told]})


def _place(at: list[str]) -> dict[str, str]:
    told = [one.partition("=") for one in at]
    wrong = [f"{name}{sign}{value}" for name, sign, value in told if not (name and value)]
    if wrong:
        raise RequestRefused(
            "bad-request", f"`at={wrong[0][:40]}` must name a place, such as country=CH"
        )
    return {name: value for name, _, value in told}


def handle_rules(call: ApiRequest) -> ApiResponse:
    """The rules in force, and with `all` those that they imply."""
    policy, query = call.decision_point.policy, call.query
    if policy is None:
        return ApiResponse({"total": 0, "kept": 0, "rules": []})
    chosen = (
        rule_to_json(rule, witness)
        for rule, witness in policy.all_rules
        if (query["all"] == "true" or witness is None)
        and query["policy"] in (None, rule.base.policy)
        and query["unit"] in (None, rule.unit)
        and query["rule"] in rule.name
    )
    told = list(islice(chosen, query["limit"]))
    return ApiResponse({"total": policy.rule_count, "kept": policy.kept_count, "rules": told})


def handle_policy(call: ApiRequest) -> ApiResponse:
    """The texts of the policy in force."""
    found, at = call.decision_point.read_state(lambda state: (state.policy, state.policy_record))
    if found is None:
        raise RequestRefused("not-found", "no policy is in force yet")
    return ApiResponse(
        {
            "digest": found.digest,
            "sequence": at,
            "total": found.rule_count,
            "kept": found.kept_count,
            "sources": [{"name": s.name, "text": s.text} for s in found.sources],
            "diagnostics": [warning.as_json() for warning in found.warnings],
        }
    )


_SOME = {
    "rule": QueryParameter("Only rules whose name holds this text.", default=""),
    "policy": QueryParameter("Only rules of one base policy."),
    "unit": QueryParameter("Only rules of one privacy unit."),
    "limit": QueryParameter("At most so many.", whole=True, least=1, most=100_000, default=1_000),
}
_AT = {"at": QueryParameter("Only this place, such as country=CH or time=2026-10.", many=True)}
_ALL = {"all": QueryParameter("The pruned rules, too.", choices=("false", "true"), default="false")}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/budgets",
        "budgets",
        "What was spent of each budget, the fullest first.",
        handle_budgets,
        EVERY_ROLE,
        "Budgets",
        query={**_SOME, **_AT},
        problems=("misused",),
    ),
    Endpoint(
        "GET",
        "/v1/rules",
        "rules",
        "The rules that are enforced.",
        handle_rules,
        EVERY_ROLE,
        "Rules",
        query={**_SOME, **_ALL},
    ),
    Endpoint(
        "GET",
        "/v1/policy",
        "policy",
        "The policy in force.",
        handle_policy,
        EVERY_ROLE,
        "Policy",
        problems=("not-found",),
    ),
)
