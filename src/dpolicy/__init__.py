"""Keep the cumulative privacy risk of all differentially private releases under control."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

#: Version of the package; pyproject.toml reads it from here.
__version__ = "0.2.0"

if TYPE_CHECKING:
    from dpolicy.allocation.round import allocate
    from dpolicy.allocation.round_result import AllocationResult
    from dpolicy.client.async_client import AsyncClient
    from dpolicy.client.client import Client
    from dpolicy.decisions.headroom.headroom import Headroom
    from dpolicy.errors import (
        ApprovalRequired,
        Denied,
        DPolicyError,
        FileMissing,
        FileUnreadable,
        InvalidValue,
        LedgerDamaged,
        LedgerUnavailable,
        MalformedRelease,
        OperationRejected,
        PolicyConflicts,
        PolicyRejected,
        ReleaseRejected,
        RequestRefused,
    )
    from dpolicy.pdp.decision_point import DecisionPoint
    from dpolicy.pdp.rule_status import RuleStatus
    from dpolicy.proofs.prover import ProofAnswer, prove
    from dpolicy.releases.decision import Decision, Reason
    from dpolicy.releases.python.budget_table import Budgets
    from dpolicy.releases.python.mechanism_builders import (
        ParameterMapping,
        declared,
        discrete_gaussian,
        discrete_laplace,
        dp_sgd,
        exponential,
        gaussian,
        laplace,
        pate,
        randomized_response,
        report_noisy_max,
        sparse_vector,
        tree_aggregation,
    )
    from dpolicy.releases.python.release_builders import (
        MechanismMapping,
        ReleaseMapping,
        mechanism,
        release,
    )
    from dpolicy.releases.release import Release
    from dpolicy.releases.release_parser import load_release
    from dpolicy.rules.compiler import CompiledPolicy, load_policy

__all__ = [
    "AllocationResult",
    "ApprovalRequired",
    "AsyncClient",
    "Budgets",
    "Client",
    "CompiledPolicy",
    "DPolicyError",
    "Decision",
    "DecisionPoint",
    "Denied",
    "FileMissing",
    "FileUnreadable",
    "Headroom",
    "InvalidValue",
    "LedgerDamaged",
    "LedgerUnavailable",
    "MalformedRelease",
    "MechanismMapping",
    "OperationRejected",
    "ParameterMapping",
    "PolicyConflicts",
    "PolicyRejected",
    "ProofAnswer",
    "Reason",
    "Release",
    "ReleaseMapping",
    "ReleaseRejected",
    "RequestRefused",
    "RuleStatus",
    "allocate",
    "declared",
    "discrete_gaussian",
    "discrete_laplace",
    "dp_sgd",
    "exponential",
    "gaussian",
    "laplace",
    "load_policy",
    "load_release",
    "mechanism",
    "pate",
    "prove",
    "randomized_response",
    "release",
    "report_noisy_max",
    "sparse_vector",
    "tree_aggregation",
]

#: Module → the public names that it defines.
_MODULES = {
    "dpolicy.allocation.round": ("allocate",),
    "dpolicy.allocation.round_result": ("AllocationResult",),
    "dpolicy.client.async_client": ("AsyncClient",),
    "dpolicy.client.client": ("Client",),
    "dpolicy.decisions.headroom.headroom": ("Headroom",),
    "dpolicy.errors": (
        "ApprovalRequired",
        "Denied",
        "DPolicyError",
        "FileMissing",
        "FileUnreadable",
        "InvalidValue",
        "LedgerDamaged",
        "LedgerUnavailable",
        "MalformedRelease",
        "OperationRejected",
        "PolicyConflicts",
        "PolicyRejected",
        "ReleaseRejected",
        "RequestRefused",
    ),
    "dpolicy.pdp.decision_point": ("DecisionPoint",),
    "dpolicy.pdp.rule_status": ("RuleStatus",),
    "dpolicy.proofs.prover": (
        "ProofAnswer",
        "prove",
    ),
    "dpolicy.releases.python.budget_table": ("Budgets",),
    "dpolicy.releases.decision": (
        "Decision",
        "Reason",
    ),
    "dpolicy.releases.python.mechanism_builders": (
        "ParameterMapping",
        "declared",
        "discrete_gaussian",
        "discrete_laplace",
        "dp_sgd",
        "exponential",
        "gaussian",
        "laplace",
        "pate",
        "randomized_response",
        "report_noisy_max",
        "sparse_vector",
        "tree_aggregation",
    ),
    "dpolicy.releases.release": ("Release",),
    "dpolicy.releases.python.release_builders": (
        "MechanismMapping",
        "ReleaseMapping",
        "mechanism",
        "release",
    ),
    "dpolicy.releases.release_parser": ("load_release",),
    "dpolicy.rules.compiler": (
        "CompiledPolicy",
        "load_policy",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, so that importing dpolicy is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dpolicy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, so that shells complete them and nothing else."""
    return sorted([*__all__, "__version__"])
