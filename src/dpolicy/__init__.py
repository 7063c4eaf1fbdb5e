"""Keep the cumulative privacy risk of all differentially private releases under control."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

#: Version of the package; pyproject.toml reads it from here.
__version__ = "0.2.0"

if TYPE_CHECKING:
    from dpolicy.allocation.round import allocate
    from dpolicy.client.async_client import AsyncClient
    from dpolicy.client.client import Client
    from dpolicy.errors import Denied, DPolicyError, InvalidValue, PolicyRejected
    from dpolicy.pdp.decision_point import DecisionPoint
    from dpolicy.releases.release_parser import load_release
    from dpolicy.rules.compiler import CompiledPolicy, load_policy

__all__ = [
    "AsyncClient",
    "Client",
    "CompiledPolicy",
    "DPolicyError",
    "DecisionPoint",
    "Denied",
    "InvalidValue",
    "PolicyRejected",
    "allocate",
    "load_policy",
    "load_release",
]

_HOMES = {
    "AsyncClient": "dpolicy.client.async_client",
    "Client": "dpolicy.client.client",
    "CompiledPolicy": "dpolicy.rules.compiler",
    "DPolicyError": "dpolicy.errors",
    "DecisionPoint": "dpolicy.pdp.decision_point",
    "Denied": "dpolicy.errors",
    "InvalidValue": "dpolicy.errors",
    "PolicyRejected": "dpolicy.errors",
    "allocate": "dpolicy.allocation.round",
    "load_policy": "dpolicy.rules.compiler",
    "load_release": "dpolicy.releases.release_parser",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, so that importing dpolicy is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dpolicy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
