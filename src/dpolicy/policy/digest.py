"""Digest of a policy set: SHA-256 of its content, independent of layout.

The digest hashes the class and field names of `model.py`, so those names never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import IF_STATED, PolicySet


def policy_digest(policies: PolicySet) -> str:
    """Return the SHA-256 digest of the content, independent of layout, comments and key order."""
    canonical = json.dumps(_plain_value(policies), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _plain_value(value: object) -> object:
    """Return a model value as JSON data; the key "" holds the class name."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {
            field.name: _plain_value(getattr(value, field.name))
            for field in fields(value)
            if field.compare and not _is_omitted(field, value)
        }
        return {"": type(value).__name__, **members}
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return value if value is None or isinstance(value, bool | int) else str(value)


def _is_omitted(field: Field[Any], value: object) -> bool:
    """Return whether a field was added after version 0.1 and the policy does not state it."""
    return field.metadata == IF_STATED and getattr(value, field.name) is None
