"""Builders of mechanism parameters, one per kind: the mapping that a release file has.

The names and parameters are those of the registry of mechanism kinds, with `_` for `-`; a test
compares them. The builders check nothing: the decision point checks a mapping like a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Required, SupportsFloat, SupportsIndex, TypedDict, cast

#: Name of a mechanism kind.
KindName = Literal[
    "declared",
    "discrete-gaussian",
    "discrete-laplace",
    "dp-sgd",
    "exponential",
    "gaussian",
    "laplace",
    "pate",
    "randomized-response",
    "report-noisy-max",
    "sparse-vector",
    "tree-aggregation",
]

#: Mechanism parameters as a mapping (docs/releases.md). A kind has only some of the keys.
ParameterMapping = TypedDict(
    "ParameterMapping",
    {
        "kind": Required[KindName],
        "count": SupportsIndex,
        "cutoff": SupportsIndex,
        "delta": SupportsFloat,
        "epsilon": SupportsFloat,
        "epsilon-queries": SupportsFloat,
        "epsilon-threshold": SupportsFloat,
        "epsilon-values": SupportsFloat,
        "mu": SupportsFloat,
        "noise": SupportsFloat | Literal["gumbel", "laplace", "exponential"],
        "noise-multiplier": SupportsFloat,
        "participations": SupportsIndex,
        "queries": SupportsIndex,
        "renyi": Mapping[Any, SupportsFloat],
        "rho": SupportsFloat,
        "sampling-rate": SupportsFloat,
        "scale": SupportsFloat,
        "sensitivity": SupportsFloat,
        "sigma": SupportsFloat,
        "steps": SupportsIndex,
        "truth": SupportsFloat,
        "values": SupportsIndex,
        "xi": SupportsFloat,
    },
    total=False,
)


def _parameters(kind: KindName, fields: Mapping[str, object]) -> ParameterMapping:
    """Return the parameters that the caller stated, under the names of a release file."""
    stated = {
        key.replace("_", "-"): value
        for key, value in fields.items()
        if value is not None and key != "kind"
    }
    return cast("ParameterMapping", {"kind": kind, **stated})


def gaussian(
    *,
    sigma: SupportsFloat,
    sensitivity: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return Gaussian noise; `sensitivity` is the L2 sensitivity, 1 by default."""
    return _parameters("gaussian", locals())


def discrete_gaussian(
    *,
    sigma: SupportsFloat,
    sensitivity: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return discrete Gaussian noise; `sensitivity` is the L2 sensitivity, 1 by default."""
    return _parameters("discrete-gaussian", locals())


def laplace(
    *,
    scale: SupportsFloat,
    sensitivity: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return Laplace noise; `sensitivity` is the L1 sensitivity, 1 by default."""
    return _parameters("laplace", locals())


def discrete_laplace(
    *,
    scale: SupportsFloat,
    sensitivity: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return discrete Laplace noise; `sensitivity` is the L1 sensitivity, 1 by default."""
    return _parameters("discrete-laplace", locals())


def randomized_response(
    *,
    truth: SupportsFloat | None = None,
    values: SupportsIndex | None = None,
    noise: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return randomized response: `truth` over two values, or `values` with `noise`."""
    return _parameters("randomized-response", locals())


def exponential(
    *,
    epsilon: SupportsFloat,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return the exponential mechanism; `epsilon` is its bounded range."""
    return _parameters("exponential", locals())


def report_noisy_max(
    *,
    epsilon: SupportsFloat,
    noise: Literal["gumbel", "laplace", "exponential"],
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return the selection of the largest score after noise."""
    return _parameters("report-noisy-max", locals())


def sparse_vector(
    *,
    epsilon_threshold: SupportsFloat,
    epsilon_queries: SupportsFloat,
    cutoff: SupportsIndex,
    epsilon_values: SupportsFloat | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return the sparse vector technique."""
    return _parameters("sparse-vector", locals())


def dp_sgd(
    *,
    noise_multiplier: SupportsFloat,
    sampling_rate: SupportsFloat,
    steps: SupportsIndex,
    count: SupportsIndex | None = None,
) -> ParameterMapping:
    """Return the training of a model by DP-SGD."""
    return _parameters("dp-sgd", locals())


def tree_aggregation(
    *,
    noise_multiplier: SupportsFloat,
    steps: SupportsIndex,
    participations: SupportsIndex | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return sums over a binary tree; a unit has 1 participation by default."""
    return _parameters("tree-aggregation", locals())


def pate(
    *,
    sigma: SupportsFloat,
    queries: SupportsIndex,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return PATE with its data-independent bound."""
    return _parameters("pate", locals())


def declared(
    *,
    epsilon: SupportsFloat | None = None,
    delta: SupportsFloat | None = None,
    rho: SupportsFloat | None = None,
    xi: SupportsFloat | None = None,
    mu: SupportsFloat | None = None,
    renyi: Mapping[Any, SupportsFloat] | None = None,
    count: SupportsIndex | None = None,
    sampling_rate: SupportsFloat | None = None,
) -> ParameterMapping:
    """Return a stated loss: `epsilon` and `delta`, `rho` and `xi`, `mu`, or a Rényi curve."""
    return _parameters("declared", locals())
