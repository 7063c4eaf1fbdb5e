"""Conversion between DpEvents of dp_accounting and mechanisms of a release.

A conversion is sound, or it is refused with a reason. An event describes one record: its value has
a norm of at most C, and the noise is in multiples of C. Adding or removing the record therefore
moves a sum by C, and changing it moves the sum by 2C, under every relation of dp_accounting. Floats
are rounded so that the loss never shrinks, in both directions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dp_accounting import dp_event as events

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import round_down, round_loss_up, round_up
from dpolicy.privacy.mechanisms.declared import DeclaredGdp, DeclaredPure, DeclaredZcdp
from dpolicy.privacy.mechanisms.gaussian import (
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Pate,
    TreeAggregation,
)
from dpolicy.privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, SparseVector
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Parameters of a mechanism, as in a release.
MechanismFields = dict[str, Any]

_NO_CURVE = "no mechanism of dpolicy has its privacy curve"
_NOT_POISSON = "a sample of fixed size is not a Poisson sample (theory 3.6)"

#: Reasons why events are refused, by the name of the event.
REFUSAL_REASONS = {
    "NonPrivateDpEvent": "it is not private",
    "UnsupportedDpEvent": "dp_accounting cannot bound its loss",
    "SampledWithReplacementDpEvent": _NOT_POISSON,
    "SampledWithoutReplacementDpEvent": _NOT_POISSON,
    "TruncatedSubsampledGaussianDpEvent": _NOT_POISSON,
    "MixtureOfGaussiansDpEvent": _NO_CURVE,
    "RepeatAndSelectDpEvent": f"{_NO_CURVE}; help: reserve every repetition",
}


def mechanisms_from_event(
    event: events.DpEvent,
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE,
    *,
    zeroed: bool = False,
) -> list[MechanismFields]:
    """Return the mechanisms that an event consists of, under a neighbouring relation.

    Set `zeroed` if the event is stated for a record that becomes zero. For sums, this is the same
    as removing the record; other events are then refused.
    """
    shift = 1 if relation is NeighbouringRelation.ADD_REMOVE else 2
    match _name(event):
        case "NoOpDpEvent":
            return []
        case "GaussianDpEvent":
            return [_gaussian(event.noise_multiplier, shift)]
        case "LaplaceDpEvent":
            scale = round_down(_require_noise(event.noise_multiplier))
            return [{"kind": "laplace", "scale": scale, "sensitivity": shift}]
        case "DiscreteLaplaceDpEvent":
            scale = round_down(_decrease(1 / _require_noise(event.noise_parameter)))
            sensitivity = shift * _require_count(event.sensitivity)
            return [{"kind": "discrete-laplace", "scale": scale, "sensitivity": sensitivity}]
        case "SingleEpochTreeAggregationDpEvent":
            return [_tree_aggregation(event, shift)]
        case "ZCDpEvent" | "RandomizedResponseDpEvent" if zeroed:
            raise _refusal(event, "it is stated for a record that becomes zero")
        case "ZCDpEvent":
            return [{"kind": "declared", "rho": round_loss_up(event.rho), "xi": round_up(event.xi)}]
        case "RandomizedResponseDpEvent":
            return _response_mechanism(event, relation)
    return _mechanisms_from_composition(event, relation, zeroed)


def _mechanisms_from_composition(
    event: events.DpEvent, relation: NeighbouringRelation, zeroed: bool
) -> list[MechanismFields]:
    """Return the mechanisms of an event that contains other events."""
    match _name(event):
        case "ComposedDpEvent":
            parts = [mechanisms_from_event(part, relation, zeroed=zeroed) for part in event.events]
            return [mechanism for part in parts for mechanism in part]
        case "SelfComposedDpEvent":
            inner = mechanisms_from_event(event.event, relation, zeroed=zeroed)
            return repeat_mechanisms(inner, _require_count(event.count))
        case "PoissonSampledDpEvent":
            inner = mechanisms_from_event(event.event, relation, zeroed=zeroed)
            return _subsample(event, inner)
    raise _refusal(event, REFUSAL_REASONS.get(_name(event), "it is an unknown type of event"))


def repeat_mechanisms(mechanisms: list[MechanismFields], count: int) -> list[MechanismFields]:
    """Return the mechanisms with `count` times as many runs."""
    return [{**fields, "count": fields.get("count", 1) * count} for fields in mechanisms]


def _name(event: events.DpEvent) -> str:
    """Return the name of an event of dp_accounting, or "" for a derived class, which may differ."""
    kind = type(event)
    return kind.__name__ if kind.__module__ == events.__name__ else ""


def _refusal(event: events.DpEvent, reason: str) -> OperationRejected:
    return OperationRejected(f"`{type(event).__name__}` cannot be charged: {reason}")


def _gaussian(noise: float, sensitivity: int) -> MechanismFields:
    sigma = round_down(_require_noise(noise))
    return {"kind": "gaussian", "sigma": sigma, "sensitivity": sensitivity}


def _tree_aggregation(event: Any, shift: int) -> MechanismFields:
    """Return the deepest tree: a record is in one tree only, so the deepest determines the cost."""
    counts = event.step_counts
    counts = counts if isinstance(counts, list | tuple) else [counts]
    deepest = max((_require_count(count) for count in counts), default=0)
    if not deepest:
        raise _refusal(event, "it has no steps")
    noise = round_down(_require_noise(event.noise_multiplier)) / shift
    return {"kind": "tree-aggregation", "noise-multiplier": noise, "steps": deepest}


def _response_mechanism(event: Any, relation: NeighbouringRelation) -> list[MechanismFields]:
    noise, values = event.noise_parameter, _require_count(event.num_buckets)
    if relation is NeighbouringRelation.ADD_REMOVE:
        message = "it does not hide whether a response exists; help: use the relation `replace`"
        raise _refusal(event, message)
    if not 0 < noise <= 1:
        raise _refusal(event, f"its noise must be above 0 and at most 1, got `{noise}`")
    if noise == 1 or values == 1:
        return []
    return [{"kind": "randomized-response", "values": values, "noise": round_down(noise)}]


def _subsample(event: Any, inner: list[MechanismFields]) -> list[MechanismFields]:
    """Return the mechanisms on one shared sample.

    Several Gaussians on one sample are equivalent to one Gaussian; other combinations are refused.
    """
    rate = event.sampling_probability
    if not 0 <= rate <= 1:
        raise _refusal(event, f"`{rate}` is not a probability")
    if rate in (0, 1) or not inner:
        return inner if rate else []
    if all(fields["kind"] == "gaussian" and "sampling-rate" not in fields for fields in inner):
        inner = [_combine_gaussians(inner)]
    if len(inner) > 1 or inner[0].get("count", 1) > 1:
        raise _refusal(event, "its mechanisms share one sample, and only Gaussians can be combined")
    combined_rate = round_up(rate) * inner[0].get("sampling-rate", 1)
    return [{**inner[0], "sampling-rate": round_up(_increase(float(combined_rate)))}]


def _combine_gaussians(gaussians: list[MechanismFields]) -> MechanismFields:
    """Return one Gaussian whose 1/σ² is the sum of those of several on the same records."""
    if len(gaussians) == 1 and "count" not in gaussians[0]:
        return gaussians[0]
    sensitivity = gaussians[0]["sensitivity"]
    precision = sum(fields.get("count", 1) / fields["sigma"] ** 2 for fields in gaussians)
    return _gaussian(_decrease(1 / math.sqrt(precision)), sensitivity)


def _require_noise(value: float) -> float:
    if not value > 0:
        raise OperationRejected(f"the noise must be above 0, got `{value}`")
    return value


def _require_count(value: Any) -> int:
    """Return a count as an integer; a negative count would return budget."""
    is_integer = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_integer or value < 1:
        raise OperationRejected(f"a count must be an integer of at least 1, got `{value}`")
    return int(value)


def event_from_mechanism(mechanism: Mechanism) -> events.DpEvent:
    """Return a DpEvent whose loss is at least that of a mechanism, under the same relation.

    dp_accounting supports trees and randomized responses only under `REPLACE` relations.
    """
    if isinstance(mechanism, DpSgd):
        mechanism = Gaussian(
            mechanism.noise_multiplier,
            count=mechanism.steps * mechanism.count,
            sampling_rate=mechanism.sampling_rate,
        )
    event = _single_run_event(mechanism)
    if mechanism.sampling_rate is not None:
        event = events.PoissonSampledDpEvent(min(1.0, _float_above(mechanism.sampling_rate)), event)
    return event if mechanism.count == 1 else events.SelfComposedDpEvent(event, mechanism.count)


def _single_run_event(m: Mechanism) -> events.DpEvent:
    match m:
        case Gaussian():
            return events.GaussianDpEvent(_float_below(m.sigma / m.sensitivity))
        case DiscreteGaussian():  # Same ρ as the Gaussian, but another trade-off function.
            return events.ZCDpEvent(_float_above((m.sensitivity / m.sigma) ** 2 / 2))
        case DeclaredGdp():
            return events.GaussianDpEvent(_float_below(1 / m.mu))
        case DeclaredZcdp():
            return events.ZCDpEvent(_float_above(m.rho), _float_above(m.xi))
        case Pate():
            return events.ZCDpEvent(_float_above(m.queries / m.sigma**2))
        case TreeAggregation(participations=1):
            return events.SingleEpochTreeAggregationDpEvent(
                _float_below(m.noise_multiplier), m.steps
            )
        case DiscreteLaplace() if m.sensitivity.denominator == 1:
            return events.DiscreteLaplaceDpEvent(_float_above(1 / m.scale), int(m.sensitivity))
        case Laplace():
            return events.LaplaceDpEvent(_float_below(m.scale / m.sensitivity))
        case RandomizedResponse():
            return events.RandomizedResponseDpEvent(_float_below(2 * (1 - m.truth)), 2)
        case KaryResponse():
            return events.RandomizedResponseDpEvent(_float_below(m.noise), m.values)
    epsilon = _pure_epsilon(m)
    if epsilon is None:
        raise OperationRejected(f"no DpEvent corresponds to `{type(replace(m, count=1)).__name__}`")
    return events.DiscreteLaplaceDpEvent(_float_above(epsilon), 1)


def _pure_epsilon(m: Mechanism) -> Fraction | None:
    """Return ε of a mechanism with pure DP, or None.

    Discrete Laplace noise that is shifted by one has a loss of exactly ±ε, which is the worst case.
    """
    match m:
        case DiscreteLaplace():
            return m.sensitivity / m.scale
        case ExponentialMechanism() | ReportNoisyMax():
            return m.epsilon
        case SparseVector():
            return m.epsilon_threshold + m.epsilon_queries + m.epsilon_values
        case DeclaredPure(delta=delta) if not delta:
            return m.epsilon
    return None


def _decrease(value: float) -> float:
    """Return a value below the exact result of a float computation."""
    return value * (1 - 2**-50)


def _increase(value: float) -> float:
    """Return a value above the exact result of a float computation."""
    return value * (1 + 2**-50)


def _float_below(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0)


def _float_above(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
