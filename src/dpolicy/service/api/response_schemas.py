"""What the API answers, as JSON Schema: by hand, and held against real answers by tests."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.ledger_state import STATUSES

JsonSchema = dict[str, Any]


def _object(required: JsonSchema, **others: JsonSchema) -> JsonSchema:
    """A map with these keys and no others."""
    return {
        "type": "object",
        "properties": {**required, **others},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(item_schema: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": item_schema}


def schema_reference(name: str) -> JsonSchema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _placed(required: JsonSchema, **others: JsonSchema) -> JsonSchema:
    """The same with the position of the ledger, as every answer below /v1 has it."""
    return _object({**required, "position": schema_reference("Position")}, **others)


_TEXT: JsonSchema = {"type": "string"}
_FLAG: JsonSchema = {"type": "boolean"}
_COUNT: JsonSchema = {"type": "integer", "minimum": 0}
_NUMBER: JsonSchema = {"type": "number"}
_TEXTS = _list(_TEXT)
_MAP: JsonSchema = {"type": "object"}
_MAYBE_COUNT: JsonSchema = {"type": ["integer", "null"], "minimum": 0}
_HASH: JsonSchema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_SHOWN: JsonSchema = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
_PLACE: JsonSchema = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
_BUDGET: JsonSchema = {"type": ["object", "string"]}

_DECIDED: JsonSchema = {
    "release": _TEXT,
    "decision": {"enum": ["allow", "deny"]},
    "sequence": _MAYBE_COUNT,
    "replayed": _FLAG,
    "policy": _TEXT,
    "reasons": _list(schema_reference("Reason")),
    "uncovered": _TEXTS,
    "errors": _TEXTS,
    "would-fit": _list(_MAP),
}
_BALANCE: JsonSchema = {
    "rule": _TEXT,
    "unit": _TEXT,
    "policies": _TEXTS,
    "at": _PLACE,
    "budget": _BUDGET,
    "spent": _SHOWN,
    "holds": _FLAG,
    "spent-most": _TEXTS,
    "source": _TEXT,
}
_ENDED: JsonSchema = {
    "release": _TEXT,
    "status": {"enum": ["committed", "voided"]},
    "sequence": _COUNT,
}
_PROPOSAL: JsonSchema = {
    "proposal": _COUNT,
    "kind": {"enum": ["release", "void", "policy"]},
    "about": _TEXT,
    "by": _TEXT,
    "at": _TEXT,
    "status": {"enum": ["open", "approved", "rejected"]},
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
            "diagnostics": _list(schema_reference("Diagnostic")),
            "problems": _list(_object({"code": _TEXT, "message": _TEXT})),
            "conflicts": _list(schema_reference("Conflict")),
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
    "Reason": _object({**_BALANCE, "cost": _SHOWN, "after": _SHOWN, "each-release": _FLAG}),
    "Decision": _object(_DECIDED),
    "Asked": _placed(_DECIDED),
    "Checked": _placed({**_DECIDED, "needs-second-person": _FLAG}),
    "Waiting": _placed(
        {
            "decision": {"enum": ["waiting"]},
            "proposal": _COUNT,
            "about": _TEXT,
            "kind": {"enum": ["release", "void", "policy"]},
        }
    ),
    "Releases": _placed(
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
            "before": _MAYBE_COUNT,
        }
    ),
    "Release": _placed(
        {
            "release": _TEXT,
            "status": {"enum": [*STATUSES, "waiting", "rejected"]},
            "sequence": _COUNT,
            "charged-by": _MAYBE_COUNT,
            "by": _TEXT,
            "at": _TEXT,
            "body": _MAP,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "Ended": _placed(_ENDED),
    "Voided": _placed(_ENDED),
    "Imported": _placed(
        {
            "imported": {"type": "object", "additionalProperties": _COUNT},
            "exceeded": _list(schema_reference("Balance")),
        }
    ),
    "RejectedCandidate": _object(
        {
            "release": _TEXT,
            "feasible-alone": _FLAG,
            "refused": _TEXTS,
            "binding": _list(_MAP),
            "would-fit": _list(_MAP),
            "opportunity-cost": {"type": ["number", "null"]},
        }
    ),
    "Allocated": _placed(
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
    "Balance": _object(_BALANCE),
    "Conflict": _object({**_BALANCE, "releases": _TEXTS, "smallest-budget": _SHOWN}),
    "Budgets": _placed({"total": _COUNT, "budgets": _list(schema_reference("Balance"))}),
    "Rule": _object(
        {
            "name": _TEXT,
            "unit": _TEXT,
            "budget": _BUDGET,
            "kept": _FLAG,
            "implied-by": {"type": ["string", "null"]},
            "implied-by-unit": {"type": ["string", "null"]},
            "each-release": _FLAG,
            "policies": _TEXTS,
            "source": _TEXTS,
        }
    ),
    "Rules": _placed({"total": _COUNT, "kept": _COUNT, "rules": _list(schema_reference("Rule"))}),
    "Policy": _placed(
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
            "unreadable": _TEXTS,
        }
    ),
    "Plan": _placed(
        {
            "policy": _TEXT,
            "total": _COUNT,
            "kept": _COUNT,
            "diagnostics": _list(schema_reference("Diagnostic")),
            "changed": _COUNT,
            "changes": _list(schema_reference("Change")),
            "conflicts": _list(schema_reference("Conflict")),
            "impact": {"anyOf": [schema_reference("Impact"), {"type": "null"}]},
            "needs-second-person": _FLAG,
        }
    ),
    "Applied": _placed({"applied": {"const": True}, "sequence": _COUNT, "policy": _TEXT}),
    "Proposals": _placed({"proposals": _list(_object(_PROPOSAL))}),
    "Proposal": _placed(
        _PROPOSAL,
        body=_MAP,
        reserve=_FLAG,
        because=_TEXT,
        sources=_SOURCES,
        accepted=_TEXTS,
    ),
    "Answered": _placed(
        {
            "proposal": _COUNT,
            "status": {"enum": ["approved", "rejected"]},
            "sequence": _COUNT,
            "decision": {"anyOf": [schema_reference("Decision"), {"type": "null"}]},
        }
    ),
    "Head": _placed({"sequence": _COUNT, "head": _HASH}),
    "Records": _placed(
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
    "Live": _placed({"live": _FLAG}),
    "Ready": _placed({"ready": _FLAG, "policy": _FLAG}),
    "Who": _placed(
        {
            "name": _TEXT,
            "roles": _TEXTS,
            "grants": {"type": "object", "additionalProperties": _TEXTS},
        }
    ),
}
