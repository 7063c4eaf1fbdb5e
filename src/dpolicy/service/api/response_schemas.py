"""JSON Schemas of the responses. They are written by hand; tests check real responses with them."""

from __future__ import annotations

from dpolicy.pdp.state.release_archive import STATUSES
from dpolicy.service.http.schema_parts import (
    BUDGET,
    COUNT,
    COUNT_OR_NULL,
    DISPLAYED_LOSS,
    FLAG,
    HASH,
    LOCATION,
    MAP,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    JsonSchema,
    list_schema,
    object_schema,
    response_schema,
    schema_reference,
)

_COST: JsonSchema = schema_reference("Cost")

_DECISION: JsonSchema = {
    "release": TEXT,
    "decision": {"enum": ["allow", "deny"]},
    "sequence": COUNT_OR_NULL,
    "replayed": FLAG,
    "policy": TEXT,
    "reasons": list_schema(schema_reference("Reason")),
    "uncovered": TEXTS,
    "errors": TEXTS,
    "would-fit": list_schema(schema_reference("CounterOffer")),
}
_RULE_STATUS: JsonSchema = {
    "rule": TEXT,
    "unit": TEXT,
    "policies": TEXTS,
    "at": LOCATION,
    "budget": BUDGET,
    "spent": DISPLAYED_LOSS,
    "holds": FLAG,
    "spent-most": TEXTS,
    "source": TEXT,
}
#: The limit of stated δ (null without a limit), and the quantity that is exceeded or most used.
#: Recorded decisions before version 0.3 do not have these keys.
_DELTA_SIDE: JsonSchema = {
    "leaks": object_schema({"limit": {"type": ["number", "null"]}}),
    "binding": {"enum": ["epsilon", "rho", "mu", "renyi", "delta", "both", None]},
}
_SHARES: JsonSchema = {"type": "object", "additionalProperties": NUMBER}
#: Upper bounds on the success of attackers, by prior and by false-positive rate.
_RISK: JsonSchema = object_schema(
    {"posterior": _SHARES, "posterior-failure": NUMBER, "tpr": _SHARES, "advantage": NUMBER}
)
#: Whether a rule is enforced, and if not, the kept rule that implies it.
_PRUNING: JsonSchema = {
    "kept": FLAG,
    "implied-by": TEXT_OR_NULL,
    "implied-by-unit": TEXT_OR_NULL,
}
_ENDED_RESERVATION: JsonSchema = {
    "release": TEXT,
    "status": {"enum": ["committed", "voided"]},
    "sequence": COUNT,
}
_PROPOSAL: JsonSchema = {
    "proposal": COUNT,
    "kind": {"enum": ["release", "void", "relabelling", "policy"]},
    "about": TEXT,
    "by": TEXT,
    "at": TEXT,
    "status": {"enum": ["open", "approved", "rejected"]},
}
_PENDING: JsonSchema = {
    "decision": {"enum": ["pending"]},
    "proposal": COUNT,
    "about": TEXT,
    "kind": {"enum": ["release", "void", "relabelling", "policy"]},
}
_SOURCES = list_schema(object_schema({"name": TEXT, "text": TEXT}))

SCHEMAS: dict[str, JsonSchema] = {
    "Position": object_schema({"sequence": COUNT, "head": HASH}),
    "Problem": {
        "type": "object",
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": COUNT,
            "code": TEXT,
            "detail": TEXT,
            "release": TEXT,
            "diagnostics": list_schema(schema_reference("Diagnostic")),
            "problems": list_schema(object_schema({"code": TEXT, "message": TEXT})),
            "conflicts": list_schema(schema_reference("Conflict")),
            "redefinitions": list_schema(schema_reference("Redefinition")),
        },
        "required": ["type", "title", "status", "code", "detail"],
    },
    "Diagnostic": object_schema(
        {
            "code": TEXT,
            "severity": {"enum": ["error", "warning"]},
            "message": TEXT,
            "file": TEXT,
            "line": COUNT,
            "column": COUNT,
            "help": {"type": ["string", "null"]},
        }
    ),
    "Reason": object_schema(
        {**_RULE_STATUS, "cost": DISPLAYED_LOSS, "after": DISPLAYED_LOSS, "each-release": FLAG},
        **_DELTA_SIDE,
        cause=TEXT,
        method={"enum": ["loss distribution"]},
    ),
    "CounterOffer": object_schema(
        {"change": TEXT},
        factor=NUMBER,
        attribute=TEXT,
        mechanism=TEXT,
        mechanisms={"type": "object", "additionalProperties": MAP},
        release=MAP,
    ),
    "Decision": object_schema(_DECISION),
    "SubmittedRelease": response_schema(_DECISION),
    "CheckedRelease": response_schema({**_DECISION, "needs-second-person": FLAG}),
    "PendingProposal": response_schema(_PENDING),
    "SubmittedReleases": response_schema(
        {
            "results": list_schema(
                {
                    "anyOf": [
                        schema_reference("Decision"),
                        object_schema(_PENDING),
                        schema_reference("Problem"),
                    ]
                }
            )
        }
    ),
    "Releases": response_schema(
        {
            "releases": list_schema(
                object_schema(
                    {
                        "release": TEXT,
                        "status": {"enum": list(STATUSES)},
                        "sequence": COUNT,
                        "by": TEXT,
                    }
                )
            ),
            "before": COUNT_OR_NULL,
        }
    ),
    "Release": response_schema(
        {
            "release": TEXT,
            "status": {"enum": [*STATUSES, "pending", "rejected"]},
            "sequence": COUNT,
            "charged-by": COUNT_OR_NULL,
            "by": TEXT,
            "at": TEXT,
            "released": {"type": ["string", "null"]},
            "body": MAP,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "EndedReservation": response_schema(_ENDED_RESERVATION),
    "ImportedReleases": response_schema(
        {
            "imported": {"type": "object", "additionalProperties": COUNT},
            "exceeded": list_schema(schema_reference("RuleStatus")),
        }
    ),
    "RejectedCandidate": object_schema(
        {
            "release": TEXT,
            "feasible-alone": FLAG,
            "refused": TEXTS,
            "binding": list_schema(MAP),
            "would-fit": list_schema(schema_reference("CounterOffer")),
            "opportunity-cost": {"type": ["number", "null"]},
        }
    ),
    "AllocationResult": response_schema(
        {
            "strategy": TEXT,
            "dry-run": FLAG,
            "utility": NUMBER,
            "bound": NUMBER,
            "gap": NUMBER,
            "selected": TEXTS,
            "already-decided": TEXTS,
            "not-selected": list_schema(schema_reference("RejectedCandidate")),
            "prices": list_schema(MAP),
            "decisions": list_schema(schema_reference("Decision")),
        }
    ),
    "Redefinition": object_schema(
        {
            "kind": {"enum": ["unit", "label", "partition"]},
            "name": TEXT,
            "accept": TEXT,
            "releases": TEXTS,
            "count": COUNT,
            "message": TEXT,
            "help": TEXT,
        }
    ),
    "RuleStatus": object_schema({**_RULE_STATUS, **_DELTA_SIDE, **_PRUNING, "risk": _RISK}),
    "Conflict": object_schema(
        {
            **_RULE_STATUS,
            **_DELTA_SIDE,
            **_PRUNING,
            "risk": _RISK,
            "releases": TEXTS,
            "smallest-budget": DISPLAYED_LOSS,
        }
    ),
    "Budgets": response_schema(
        {"total": COUNT, "budgets": list_schema(schema_reference("RuleStatus"))}
    ),
    "Spending": response_schema(
        {
            "unit": TEXT,
            "at": LOCATION,
            "scope": object_schema({"when": TEXT_OR_NULL, "rule": TEXT_OR_NULL}),
            "spent": _COST,
            "risk": _RISK,
            "renyi": DISPLAYED_LOSS,
            "exact": object_schema({"epsilon": NUMBER_OR_NULL, "note": TEXT}),
            "releases": list_schema(object_schema({"release": TEXT, "by": TEXT, "cost": _COST})),
            "release-count": COUNT,
            "by": list_schema(object_schema({"by": TEXT, "releases": COUNT, "cost": _COST})),
            "notes": TEXTS,
            "as-of": COUNT,
        },
    ),
    "Cost": object_schema(
        {
            "epsilon": NUMBER_OR_NULL,
            "delta": NUMBER,
            "rho": NUMBER_OR_NULL,
            "mu": NUMBER_OR_NULL,
            "pure": NUMBER_OR_NULL,
            "stated-delta": NUMBER_OR_NULL,
        }
    ),
    "Headroom": response_schema(
        {
            "release": TEXT,
            "more": COUNT_OR_NULL,
            "rules": list_schema(
                object_schema(
                    {
                        "rule": TEXT,
                        "unit": TEXT,
                        "each-release": FLAG,
                        "more": COUNT_OR_NULL,
                        "at": LOCATION,
                        "budget": BUDGET,
                        "spent": DISPLAYED_LOSS,
                        "cost": DISPLAYED_LOSS,
                        "source": TEXT,
                    }
                )
            ),
            "uncovered": TEXTS,
            "errors": TEXTS,
            "most-accurate": {"anyOf": [schema_reference("CounterOffer"), {"type": "null"}]},
        }
    ),
    "Rule": object_schema(
        {
            "name": TEXT,
            "unit": TEXT,
            "budget": BUDGET,
            **_PRUNING,
            "each-release": FLAG,
            "policies": TEXTS,
            "source": TEXTS,
        }
    ),
    "Rules": response_schema(
        {"total": COUNT, "kept": COUNT, "rules": list_schema(schema_reference("Rule"))}
    ),
    "Policy": response_schema(
        {
            "digest": TEXT,
            "sequence": COUNT,
            "total": COUNT,
            "kept": COUNT,
            "sources": _SOURCES,
            "diagnostics": list_schema(schema_reference("Diagnostic")),
        }
    ),
    "Change": object_schema(
        {
            "change": TEXT,
            "rule": TEXT,
            "unit": TEXT,
            "before": {"type": ["object", "string", "null"]},
            "after": {"type": ["object", "string", "null"]},
            "each-release": FLAG,
        }
    ),
    "Impact": object_schema(
        {
            "replayed": COUNT,
            "complete": FLAG,
            "would-be-denied": TEXTS,
            "would-be-allowed": TEXTS,
            "unresolvable": TEXTS,
        }
    ),
    "Plan": response_schema(
        {
            "policy": TEXT,
            "total": COUNT,
            "kept": COUNT,
            "diagnostics": list_schema(schema_reference("Diagnostic")),
            "changed": COUNT,
            "changes": list_schema(schema_reference("Change")),
            "conflicts": list_schema(schema_reference("Conflict")),
            "redefinitions": list_schema(schema_reference("Redefinition")),
            "impact": {"anyOf": [schema_reference("Impact"), {"type": "null"}]},
            "needs-second-person": FLAG,
        }
    ),
    "AppliedPolicy": response_schema(
        {"applied": {"const": True}, "sequence": COUNT, "policy": TEXT}
    ),
    "Proposals": response_schema({"proposals": list_schema(object_schema(_PROPOSAL))}),
    "Proposal": response_schema(
        _PROPOSAL,
        body=MAP,
        reserve=FLAG,
        because=TEXT,
        sources=_SOURCES,
        accepted=TEXTS,
    ),
    "AnsweredProposal": response_schema(
        {
            "proposal": COUNT,
            "status": {"enum": ["approved", "rejected"]},
            "sequence": COUNT,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "Head": response_schema({"sequence": COUNT, "head": HASH}),
    "Records": response_schema(
        {
            "behind": schema_reference("Position"),
            "records": list_schema(
                object_schema({"sequence": COUNT, "hash": HASH, "payload": TEXT})
            ),
        }
    ),
    "Evaluation": object_schema({"decision": FLAG, "context": MAP}),
    "Evaluations": object_schema({"evaluations": list_schema(schema_reference("Evaluation"))}),
    "AuthzenConfiguration": object_schema(
        {
            "policy_decision_point": TEXT,
            "access_evaluation_endpoint": TEXT,
            "access_evaluations_endpoint": TEXT,
        }
    ),
    "Liveness": response_schema({"live": FLAG}),
    "Readiness": response_schema({"ready": FLAG, "policy": FLAG}),
    "Caller": response_schema(
        {
            "name": TEXT,
            "roles": TEXTS,
            "grants": {"type": "object", "additionalProperties": TEXTS},
        }
    ),
}
