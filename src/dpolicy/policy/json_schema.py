"""JSON Schema of a policy file, derived from the grammar; ships as `policy.schema.json`."""

from __future__ import annotations

from typing import Any

from dpolicy.policy.grammar import FILE


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of one policy file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dpolicy policy file",
        **FILE.schema(),
    }
