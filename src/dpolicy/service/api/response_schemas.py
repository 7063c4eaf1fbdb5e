"""JSON Schemas of the responses. They are written by hand; tests check real responses with them."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.state.release_archive import STATUSES

JsonSchema = dict[str, Any]


def _object(required: JsonSchema, **optional: JsonSchema) -> JsonSchema:
    """Return the schema of an object with these keys and no other keys."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(item_schema: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": item_schema}


def schema_reference(name: str) -> JsonSchema:
    """Return a reference to the schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _response(required: JsonSchema, **optional: JsonSchema) -> JsonSchema:
    """Return the schema of a response below /v1, which also has the position of the ledger."""
    return _object({**required, "position": schema_reference("Position")}, **optional)


_TEXT: JsonSchema = {"type": "string"}
_FLAG: JsonSchema = {"type": "boolean"}
_COUNT: JsonSchema = {"type": "integer", "minimum": 0}
_NUMBER: JsonSchema = {"type": "number"}
_NUMBER_OR_NULL: JsonSchema = {"type": ["number", "null"]}
_TEXT_OR_NULL: JsonSchema = {"type": ["string", "null"]}
_TEXTS = _list(_TEXT)
_MAP: JsonSchema = {"type": "object"}
_COUNT_OR_NULL: JsonSchema = {"type": ["integer", "null"], "minimum": 0}
_HASH: JsonSchema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DISPLAYED_LOSS: JsonSchema = {"type": "object", "additionalProperties": _NUMBER_OR_NULL}
_LOCATION: JsonSchema = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
_BUDGET: JsonSchema = {"type": ["object", "string"]}
_COST: JsonSchema = schema_reference("Cost")

_DECISION: JsonSchema = {
    "release": _TEXT,
    "decision": {"enum": ["allow", "deny"]},
    "sequence": _COUNT_OR_NULL,
    "replayed": _FLAG,
    "policy": _TEXT,
    "reasons": _list(schema_reference("Reason")),
    "uncovered": _TEXTS,
    "errors": _TEXTS,
    "would-fit": _list(schema_reference("CounterOffer")),
}
_RULE_STATUS: JsonSchema = {
    "rule": _TEXT,
    "unit": _TEXT,
    "policies": _TEXTS,
    "at": _LOCATION,
    "budget": _BUDGET,
    "spent": _DISPLAYED_LOSS,
    "holds": _FLAG,
    "spent-most": _TEXTS,
    "source": _TEXT,
}
#: The limit of stated δ (null without a limit), and the quantity that is exceeded or most used.
#: Recorded decisions before version 0.3 do not have these keys.
_DELTA_SIDE: JsonSchema = {
    "leaks": _object({"limit": {"type": ["number", "null"]}}),
    "binding": {"enum": ["epsilon", "rho", "mu", "renyi", "delta", "both", None]},
}
_SHARES: JsonSchema = {"type": "object", "additionalProperties": _NUMBER}
#: Upper bounds on the success of attackers, by prior and by false-positive rate.
_RISK: JsonSchema = _object(
    {"posterior": _SHARES, "posterior-failure": _NUMBER, "tpr": _SHARES, "advantage": _NUMBER}
)
#: Whether a rule is enforced, and if not, the kept rule that implies it.
_PRUNING: JsonSchema = {
    "kept": _FLAG,
    "implied-by": _TEXT_OR_NULL,
    "implied-by-unit": _TEXT_OR_NULL,
}
_ENDED_RESERVATION: JsonSchema = {
    "release": _TEXT,
    "status": {"enum": ["committed", "voided"]},
    "sequence": _COUNT,
}
_PROPOSAL: JsonSchema = {
    "proposal": _COUNT,
    "kind": {"enum": ["release", "void", "relabelling", "policy"]},
    "about": _TEXT,
    "by": _TEXT,
    "at": _TEXT,
    "status": {"enum": ["open", "approved", "rejected"]},
}
_PENDING: JsonSchema = {
    "decision": {"enum": ["pending"]},
    "proposal": _COUNT,
    "about": _TEXT,
    "kind": {"enum": ["release", "void", "relabelling", "policy"]},
}
_SOURCES = _list(_object({"name": _TEXT, "text": _TEXT}))

SCHEMAS: dict[str, JsonSchema] = {
    "Position": _object({"sequence": _COUNT, "head": _HASH}),
    "Problem": {
        "type": "object",
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": _COUNT,
            "code": _TEXT,
            "detail": _TEXT,
            "release": _TEXT,
            "diagnostics": _list(schema_reference("Diagnostic")),
            "problems": _list(_object({"code": _TEXT, "message": _TEXT})),
            "conflicts": _list(schema_reference("Conflict")),
            "redefinitions": _list(schema_reference("Redefinition")),
        },
        "required": ["type", "title", "status", "code", "detail"],
    },
    "Diagnostic": _object(
        {
            "code": _TEXT,
            "severity": {"enum": ["error", "warning"]},
            "message": _TEXT,
            "file": _TEXT,
            "line": _COUNT,
            "column": _COUNT,
            "help": {"type": ["string", "null"]},
        }
    ),
    "Reason": _object(
        {**_RULE_STATUS, "cost": _DISPLAYED_LOSS, "after": _DISPLAYED_LOSS, "each-release": _FLAG},
        **_DELTA_SIDE,
        cause=_TEXT,
        method={"enum": ["loss distribution"]},
    ),
    "CounterOffer": _object(
        {"change": _TEXT},
        factor=_NUMBER,
        attribute=_TEXT,
        mechanism=_TEXT,
        mechanisms={"type": "object", "additionalProperties": _MAP},
        release=_MAP,
    ),
    "Decision": _object(_DECISION),
    "SubmittedRelease": _response(_DECISION),
    "CheckedRelease": _response({**_DECISION, "needs-second-person": _FLAG}),
    "PendingProposal": _response(_PENDING),
    "SubmittedReleases": _response(
        {
            "results": _list(
                {
                    "anyOf": [
                        schema_reference("Decision"),
                        _object(_PENDING),
                        schema_reference("Problem"),
                    ]
                }
            )
        }
    ),
    "Releases": _response(
        {
            "releases": _list(
                _object(
                    {
                        "release": _TEXT,
                        "status": {"enum": list(STATUSES)},
                        "sequence": _COUNT,
                        "by": _TEXT,
                    }
                )
            ),
            "before": _COUNT_OR_NULL,
        }
    ),
    "Release": _response(
        {
            "release": _TEXT,
            "status": {"enum": [*STATUSES, "pending", "rejected"]},
            "sequence": _COUNT,
            "charged-by": _COUNT_OR_NULL,
            "by": _TEXT,
            "at": _TEXT,
            "released": {"type": ["string", "null"]},
            "body": _MAP,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "EndedReservation": _response(_ENDED_RESERVATION),
    "ImportedReleases": _response(
        {
            "imported": {"type": "object", "additionalProperties": _COUNT},
            "exceeded": _list(schema_reference("RuleStatus")),
        }
    ),
    "RejectedCandidate": _object(
        {
            "release": _TEXT,
            "feasible-alone": _FLAG,
            "refused": _TEXTS,
            "binding": _list(_MAP),
            "would-fit": _list(schema_reference("CounterOffer")),
            "opportunity-cost": {"type": ["number", "null"]},
        }
    ),
    "AllocationResult": _response(
        {
            "strategy": _TEXT,
            "dry-run": _FLAG,
            "utility": _NUMBER,
            "bound": _NUMBER,
            "gap": _NUMBER,
            "selected": _TEXTS,
            "already-decided": _TEXTS,
            "not-selected": _list(schema_reference("RejectedCandidate")),
            "prices": _list(_MAP),
            "decisions": _list(schema_reference("Decision")),
        }
    ),
    "Redefinition": _object(
        {
            "kind": {"enum": ["unit", "label", "partition"]},
            "name": _TEXT,
            "accept": _TEXT,
            "releases": _TEXTS,
            "count": _COUNT,
            "message": _TEXT,
            "help": _TEXT,
        }
    ),
    "RuleStatus": _object({**_RULE_STATUS, **_DELTA_SIDE, **_PRUNING, "risk": _RISK}),
    "Conflict": _object(
        {
            **_RULE_STATUS,
            **_DELTA_SIDE,
            **_PRUNING,
            "risk": _RISK,
            "releases": _TEXTS,
            "smallest-budget": _DISPLAYED_LOSS,
        }
    ),
    "Budgets": _response({"total": _COUNT, "budgets": _list(schema_reference("RuleStatus"))}),
    "Spending": _response(
        {
            "unit": _TEXT,
            "at": _LOCATION,
            "scope": _object({"when": _TEXT_OR_NULL, "rule": _TEXT_OR_NULL}),
            "spent": _COST,
            "risk": _RISK,
            "renyi": _DISPLAYED_LOSS,
            "exact": _object({"epsilon": _NUMBER_OR_NULL, "note": _TEXT}),
            "releases": _list(_object({"release": _TEXT, "by": _TEXT, "cost": _COST})),
            "release-count": _COUNT,
            "by": _list(_object({"by": _TEXT, "releases": _COUNT, "cost": _COST})),
            "notes": _TEXTS,
            "as-of": _COUNT,
        },
    ),
    "Cost": _object(
        {
            "epsilon": _NUMBER_OR_NULL,
            "delta": _NUMBER,
            "rho": _NUMBER_OR_NULL,
            "mu": _NUMBER_OR_NULL,
            "pure": _NUMBER_OR_NULL,
            "stated-delta": _NUMBER_OR_NULL,
        }
    ),
    "Headroom": _response(
        {
            "release": _TEXT,
            "more": _COUNT_OR_NULL,
            "rules": _list(
                _object(
                    {
                        "rule": _TEXT,
                        "unit": _TEXT,
                        "each-release": _FLAG,
                        "more": _COUNT_OR_NULL,
                        "at": _LOCATION,
                        "budget": _BUDGET,
                        "spent": _DISPLAYED_LOSS,
                        "cost": _DISPLAYED_LOSS,
                        "source": _TEXT,
                    }
                )
            ),
            "uncovered": _TEXTS,
            "errors": _TEXTS,
            "most-accurate": {"anyOf": [schema_reference("CounterOffer"), {"type": "null"}]},
        }
    ),
    "Rule": _object(
        {
            "name": _TEXT,
            "unit": _TEXT,
            "budget": _BUDGET,
            **_PRUNING,
            "each-release": _FLAG,
            "policies": _TEXTS,
            "source": _TEXTS,
        }
    ),
    "Rules": _response({"total": _COUNT, "kept": _COUNT, "rules": _list(schema_reference("Rule"))}),
    "Policy": _response(
        {
            "digest": _TEXT,
            "sequence": _COUNT,
            "total": _COUNT,
            "kept": _COUNT,
            "sources": _SOURCES,
            "diagnostics": _list(schema_reference("Diagnostic")),
        }
    ),
    "Change": _object(
        {
            "change": _TEXT,
            "rule": _TEXT,
            "unit": _TEXT,
            "before": {"type": ["object", "string", "null"]},
            "after": {"type": ["object", "string", "null"]},
            "each-release": _FLAG,
        }
    ),
    "Impact": _object(
        {
            "replayed": _COUNT,
            "complete": _FLAG,
            "would-be-denied": _TEXTS,
            "would-be-allowed": _TEXTS,
            "unresolvable": _TEXTS,
        }
    ),
    "Plan": _response(
        {
            "policy": _TEXT,
            "total": _COUNT,
            "kept": _COUNT,
            "diagnostics": _list(schema_reference("Diagnostic")),
            "changed": _COUNT,
            "changes": _list(schema_reference("Change")),
            "conflicts": _list(schema_reference("Conflict")),
            "redefinitions": _list(schema_reference("Redefinition")),
            "impact": {"anyOf": [schema_reference("Impact"), {"type": "null"}]},
            "needs-second-person": _FLAG,
        }
    ),
    "AppliedPolicy": _response({"applied": {"const": True}, "sequence": _COUNT, "policy": _TEXT}),
    "Proposals": _response({"proposals": _list(_object(_PROPOSAL))}),
    "Proposal": _response(
        _PROPOSAL,
        body=_MAP,
        reserve=_FLAG,
        because=_TEXT,
        sources=_SOURCES,
        accepted=_TEXTS,
    ),
    "AnsweredProposal": _response(
        {
            "proposal": _COUNT,
            "status": {"enum": ["approved", "rejected"]},
            "sequence": _COUNT,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "Head": _response({"sequence": _COUNT, "head": _HASH}),
    "Records": _response(
        {
            "behind": schema_reference("Position"),
            "records": _list(_object({"sequence": _COUNT, "hash": _HASH, "payload": _TEXT})),
        }
    ),
    "Evaluation": _object({"decision": _FLAG, "context": _MAP}),
    "Evaluations": _object({"evaluations": _list(schema_reference("Evaluation"))}),
    "AuthzenConfiguration": _object(
        {
            "policy_decision_point": _TEXT,
            "access_evaluation_endpoint": _TEXT,
            "access_evaluations_endpoint": _TEXT,
        }
    ),
    "Liveness": _response({"live": _FLAG}),
    "Readiness": _response({"ready": _FLAG, "policy": _FLAG}),
    "Caller": _response(
        {
            "name": _TEXT,
            "roles": _TEXTS,
            "grants": {"type": "object", "additionalProperties": _TEXTS},
        }
    ),
}
