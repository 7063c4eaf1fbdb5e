"""A candidate policy over HTTP: what it would change, and putting it in force."""

from __future__ import annotations

from typing import Any

from dpolicy.enforcement.governance import conflict_json, differences, only_tightens
from dpolicy.enforcement.impact import impact
from dpolicy.language.shape import Field, Flag, ListOf, Record, Text
from dpolicy.language.source import Source
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.service.endpoint import Answer, Call, Endpoint
from dpolicy.service.principal import Role
from dpolicy.service.releases import waiting

#: Differences and conflicts that are told; there can be a million rules.
MOST_TOLD = 1_000

_SOURCE = Record(
    "a source",
    {
        "name": Field(Text("the name of a file"), required=True),
        "text": Field(Text(), required=True),
    },
    lambda v, _: Source(str(v["name"]), str(v["text"])),
)
_SOURCES = Field(
    ListOf(_SOURCE, "a list of sources", least=1, most=1_000), "the files of a policy set", True
)
_PLAN = Record(
    "a candidate",
    {"sources": _SOURCES, "replay": Field(Flag(), "decide the past again", default=True)},
    lambda values, _: values,
)
_APPLY = Record(
    "a policy to apply",
    {
        "sources": _SOURCES,
        "accept": Field(ListOf(Text()), "rules whose conflicts are accepted", default=()),
        "because": Field(Text(), "why, for the record", default=""),
    },
    lambda values, _: values,
)


def plan(call: Call) -> Answer:
    """What a candidate would change, what conflicts, and what would have been decided otherwise."""
    candidate, old = compile_policy(call.body["sources"]), call.point.policy
    changes = [] if old is None else differences(old, candidate)
    found = call.point.conflicts(candidate)
    replayed = impact(candidate, call.point.records()).as_json() if call.body["replay"] else None
    return Answer(
        {
            "policy": candidate.digest,
            "total": candidate.total,
            "kept": candidate.kept,
            "diagnostics": [warning.as_json() for warning in candidate.warnings],
            "changed": len(changes),
            "changes": [change.as_json() for change in changes[:MOST_TOLD]],
            "conflicts": [conflict_json(conflict) for conflict in found[:MOST_TOLD]],
            "impact": replayed,
            "needs-second-person": _needs_two(call, old, candidate),
        }
    )


def apply(call: Call) -> Answer:
    """Put a policy in force, or let it wait."""
    said: dict[str, Any] = call.body
    candidate, by = compile_policy(said["sources"]), call.principal.name
    accept, because = [str(name) for name in said["accept"]], str(said["because"])
    old = call.point.policy
    if _needs_two(call, old, candidate):
        return waiting(call.point.propose_policy(candidate, accept, by, because))
    point = call.point.only_under(old) if call.access.approval.policy else call.point
    sequence = point.apply(candidate, accept, by, because)
    return Answer({"applied": True, "sequence": sequence, "policy": candidate.digest})


def _needs_two(call: Call, old: CompiledPolicy | None, new: CompiledPolicy) -> bool:
    return call.access.approval.policy and not only_tightens(old, new)


_OFFICER = frozenset({Role.OFFICER})
_READERS = frozenset({Role.OFFICER, Role.APPROVER, Role.AUDITOR})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/policies:plan",
        "plan",
        "What a candidate would change; nothing is written.",
        plan,
        _READERS,
        "Plan",
        _PLAN,
        problems=("invalid",),
    ),
    Endpoint(
        "POST",
        "/v1/policies:apply",
        "apply",
        "Put a policy in force.",
        apply,
        _OFFICER,
        "Applied",
        _APPLY,
        problems=("invalid", "conflicting", "policy-changed"),
        waits=True,
    ),
)
