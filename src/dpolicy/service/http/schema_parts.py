"""Parts of JSON Schemas: objects, lists, responses and values that many schemas share."""

from __future__ import annotations

from typing import Any

JsonSchema = dict[str, Any]


def object_schema(required: JsonSchema, **optional: JsonSchema) -> JsonSchema:
    """Return the schema of an object with these keys and no other keys."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def list_schema(item_schema: JsonSchema) -> JsonSchema:
    """Return the schema of a list."""
    return {"type": "array", "items": item_schema}


def schema_reference(name: str) -> JsonSchema:
    """Return a reference to the schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def response_schema(required: JsonSchema, **optional: JsonSchema) -> JsonSchema:
    """Return the schema of a response below /v1, which also has the position of the ledger."""
    return object_schema({**required, "position": schema_reference("Position")}, **optional)


TEXT: JsonSchema = {"type": "string"}
FLAG: JsonSchema = {"type": "boolean"}
COUNT: JsonSchema = {"type": "integer", "minimum": 0}
NUMBER: JsonSchema = {"type": "number"}
NUMBER_OR_NULL: JsonSchema = {"type": ["number", "null"]}
TEXT_OR_NULL: JsonSchema = {"type": ["string", "null"]}
TEXTS = list_schema(TEXT)
MAP: JsonSchema = {"type": "object"}
COUNT_OR_NULL: JsonSchema = {"type": ["integer", "null"], "minimum": 0}
HASH: JsonSchema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
DISPLAYED_LOSS: JsonSchema = {"type": "object", "additionalProperties": NUMBER_OR_NULL}
LOCATION: JsonSchema = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
BUDGET: JsonSchema = {"type": ["object", "string"]}
