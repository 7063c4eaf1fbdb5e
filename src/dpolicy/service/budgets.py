"""The policy in force, its rules and what they have spent, over HTTP."""

from __future__ import annotations

from itertools import islice

from dpolicy.enforcement.governance import Balance, balances, share_used
from dpolicy.enforcement.places import space_of
from dpolicy.enforcement.state import State
from dpolicy.errors import Refused
from dpolicy.rules.rule import Rule, rule_json
from dpolicy.service.endpoint import Answer, Call, Endpoint, Parameter
from dpolicy.service.principal import EVERY_ROLE


def budgets(call: Call) -> Answer:
    """What each rule has spent, the fullest first."""
    query, at = call.query, _place(call.query["at"])
    filtered = query["rule"] or query["policy"] or query["unit"]

    def wanted(rule: Rule) -> bool:
        return (
            query["policy"] in (None, rule.base.policy)
            and query["unit"] in (None, rule.unit)
            and query["rule"] in rule.name
        )

    def look(state: State) -> list[Balance]:
        place = space_of(state.policy).at(at) if at and state.policy else None
        return balances(state, place, wanted if filtered else None, query["limit"])

    found = call.point.consult(look)
    found.sort(key=lambda balance: -float(share_used(balance) or 0))
    told = found[: query["limit"]]
    return Answer({"total": len(found), "budgets": [balance.as_json() for balance in told]})


def _place(at: list[str]) -> dict[str, str]:
    told = [one.partition("=") for one in at]
    wrong = [f"{name}{sign}{value}" for name, sign, value in told if not (name and value)]
    if wrong:
        raise Refused("bad-request", f"`at={wrong[0][:40]}` must name a place, such as country=CH")
    return {name: value for name, _, value in told}


def rules(call: Call) -> Answer:
    """The rules in force, and with `all` those that they imply."""
    policy, query = call.point.policy, call.query
    if policy is None:
        return Answer({"total": 0, "kept": 0, "rules": []})
    chosen = (
        rule_json(rule, witness)
        for rule, witness in policy.all_rules
        if (query["all"] == "true" or witness is None)
        and query["policy"] in (None, rule.base.policy)
        and query["unit"] in (None, rule.unit)
        and query["rule"] in rule.name
    )
    told = list(islice(chosen, query["limit"]))
    return Answer({"total": policy.total, "kept": policy.kept, "rules": told})


def policy(call: Call) -> Answer:
    """The texts of the policy in force."""
    found, at = call.point.consult(lambda state: (state.policy, state.policy_at))
    if found is None:
        raise Refused("not-found", "no policy is in force yet")
    return Answer(
        {
            "digest": found.digest,
            "sequence": at,
            "total": found.total,
            "kept": found.kept,
            "sources": [{"name": s.name, "text": s.text} for s in found.sources],
            "diagnostics": [warning.as_json() for warning in found.warnings],
        }
    )


_SOME = {
    "rule": Parameter("Only rules whose name holds this text.", default=""),
    "policy": Parameter("Only rules of one base policy."),
    "unit": Parameter("Only rules of one privacy unit."),
    "limit": Parameter("At most so many.", whole=True, least=1, most=100_000, default=1_000),
}
_AT = {"at": Parameter("Only this place, such as country=CH or time=2026-10.", many=True)}
_ALL = {"all": Parameter("The pruned rules, too.", choices=("false", "true"), default="false")}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/budgets",
        "budgets",
        "What was spent of each budget, the fullest first.",
        budgets,
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
        rules,
        EVERY_ROLE,
        "Rules",
        query={**_SOME, **_ALL},
    ),
    Endpoint(
        "GET",
        "/v1/policy",
        "policy",
        "The policy in force.",
        policy,
        EVERY_ROLE,
        "Policy",
        problems=("not-found",),
    ),
)
