"""DpEvents of dp_accounting ↔ our mechanisms: each conversion sound, or refused with the reason.

An event is about one record: its value has a norm of at most C, and noise is in multiples of C. So
adding or removing the record moves a sum by C, and changing it by 2C, whatever relation the event
is counted under elsewhere. Floats are rounded against the spender both ways.
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

#: The fields of a mechanism, as a release states them.
MechanismFields = dict[str, Any]

_NOT_POISSON = "a batch of fixed size is not a Poisson sample (theory 3.6)"

#: Events that are refused, and why.
REFUSED = {
    "NonPrivateDpEvent": "it is not private at all",
    "UnsupportedDpEvent": "it says itself that nothing is known of it",
    "SampledWithReplacementDpEvent": _NOT_POISSON,
    "SampledWithoutReplacementDpEvent": _NOT_POISSON,
    "TruncatedSubsampledGaussianDpEvent": _NOT_POISSON,
    "MixtureOfGaussiansDpEvent": "no mechanism here has its curve",
    "RepeatAndSelectDpEvent": "no mechanism here has its curve; help: reserve every repetition",
}


def mechanisms_from_event(
    event: events.DpEvent,
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE,
    *,
    zeroed: bool = False,
) -> list[MechanismFields]:
    """The mechanisms that an event is, for neighbours under a relation.

    `zeroed` says that the event is about a record that becomes zero. For sums that is its removal;
    of other events nothing follows.
    """
    moved = 1 if relation is NeighbouringRelation.ADD_REMOVE else 2
    match _name(event):
        case "NoOpDpEvent":
            return []
        case "GaussianDpEvent":
            return [_gaussian(event.noise_multiplier, moved)]
        case "LaplaceDpEvent":
            scale = round_down(_noise(event.noise_multiplier))
            return [{"kind": "laplace", "scale": scale, "sensitivity": moved}]
        case "DiscreteLaplaceDpEvent":
            scale = round_down(_less(1 / _noise(event.noise_parameter)))
            shift = moved * _whole(event.sensitivity)
            return [{"kind": "discrete-laplace", "scale": scale, "sensitivity": shift}]
        case "SingleEpochTreeAggregationDpEvent":
            return [_tree(event, moved)]
        case "ZCDpEvent" | "RandomizedResponseDpEvent" if zeroed:
            raise _refused(event, "it is stated for a record that becomes zero")
        case "ZCDpEvent":
            return [{"kind": "declared", "rho": round_loss_up(event.rho), "xi": round_up(event.xi)}]
        case "RandomizedResponseDpEvent":
            return _response(event, relation)
    return _composed(event, relation, zeroed)


def _composed(
    event: events.DpEvent, relation: NeighbouringRelation, zeroed: bool
) -> list[MechanismFields]:
    """Events that are made of events."""
    match _name(event):
        case "ComposedDpEvent":
            parts = [mechanisms_from_event(part, relation, zeroed=zeroed) for part in event.events]
            return [mechanism for part in parts for mechanism in part]
        case "SelfComposedDpEvent":
            inner = mechanisms_from_event(event.event, relation, zeroed=zeroed)
            return repeat_mechanisms(inner, _whole(event.count))
        case "PoissonSampledDpEvent":
            inner = mechanisms_from_event(event.event, relation, zeroed=zeroed)
            return _sampled(event, inner)
    raise _refused(event, REFUSED.get(_name(event), "it is not known here"))


def repeat_mechanisms(mechanisms: list[MechanismFields], count: int) -> list[MechanismFields]:
    """All of the mechanisms so many times."""
    return [{**fields, "count": fields.get("count", 1) * count} for fields in mechanisms]


def _name(event: events.DpEvent) -> str:
    """An event of dp_accounting itself; a class that somebody derived may mean anything."""
    kind = type(event)
    return kind.__name__ if kind.__module__ == events.__name__ else ""


def _refused(event: events.DpEvent, why: str) -> OperationRejected:
    return OperationRejected(f"`{type(event).__name__}` cannot be charged: {why}")


def _gaussian(noise: float, moved: int) -> MechanismFields:
    return {"kind": "gaussian", "sigma": round_down(_noise(noise)), "sensitivity": moved}


def _tree(event: Any, moved: int) -> MechanismFields:
    """A record is in one of the trees only, so the deepest decides."""
    steps = (
        event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
    )
    deepest = max((_whole(count) for count in steps), default=0)
    if not deepest:
        raise _refused(event, "it has no steps")
    noise = round_down(_noise(event.noise_multiplier)) / moved
    return {"kind": "tree-aggregation", "noise-multiplier": noise, "steps": deepest}


def _response(event: Any, relation: NeighbouringRelation) -> list[MechanismFields]:
    noise, values = event.noise_parameter, _whole(event.num_buckets)
    if relation is NeighbouringRelation.ADD_REMOVE:
        raise _refused(event, "an answer that is there or not is no secret; use `replace`")
    if not 0 < noise <= 1:
        raise _refused(event, f"a noise of `{noise}` hides nothing")
    if noise == 1 or values == 1:
        return []
    return [{"kind": "randomized-response", "values": values, "noise": round_down(noise)}]


def _sampled(event: Any, inner: list[MechanismFields]) -> list[MechanismFields]:
    """One sample for all that is inside. Gaussians on it are one Gaussian; others do not add up."""
    rate = event.sampling_probability
    if not 0 <= rate <= 1:
        raise _refused(event, f"`{rate}` is no probability")
    if rate in (0, 1) or not inner:
        return inner if rate else []
    if all(fields["kind"] == "gaussian" and "sampling-rate" not in fields for fields in inner):
        inner = [_joined(inner)]
    if len(inner) > 1 or inner[0].get("count", 1) > 1:
        raise _refused(event, "several mechanisms on one sample are not each on a sample of it")
    again = round_up(rate) * inner[0].get("sampling-rate", 1)
    return [{**inner[0], "sampling-rate": round_up(_more(float(again)))}]


def _joined(gaussians: list[MechanismFields]) -> MechanismFields:
    """Several Gaussians on the same records: one with 1/σ² the sum of theirs."""
    if len(gaussians) == 1 and "count" not in gaussians[0]:
        return gaussians[0]
    moved = gaussians[0]["sensitivity"]
    precision = sum(fields.get("count", 1) / fields["sigma"] ** 2 for fields in gaussians)
    return _gaussian(_less(1 / math.sqrt(precision)), moved)


def _noise(value: float) -> float:
    if not value > 0:
        raise OperationRejected(f"a noise of `{value}` hides nothing")
    return value


def _whole(value: Any) -> int:
    """A count; a negative one would give budget back."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < 1:
        raise OperationRejected(f"`{value}` is no count; it must be a whole number of at least 1")
    return int(value)


def event_from_mechanism(mechanism: Mechanism) -> events.DpEvent:
    """A DpEvent that loses at least what a mechanism loses, under the relation it is stated for.

    dp_accounting counts trees and randomized responses under a relation of `REPLACE` only.
    """
    if isinstance(mechanism, DpSgd):
        mechanism = Gaussian(
            mechanism.noise_multiplier,
            count=mechanism.steps * mechanism.count,
            sampling_rate=mechanism.sampling_rate,
        )
    event = _one_run(mechanism)
    if mechanism.sampling_rate is not None:
        event = events.PoissonSampledDpEvent(min(1.0, _above(mechanism.sampling_rate)), event)
    return event if mechanism.count == 1 else events.SelfComposedDpEvent(event, mechanism.count)


def _one_run(m: Mechanism) -> events.DpEvent:
    match m:
        case Gaussian():
            return events.GaussianDpEvent(_below(m.sigma / m.sensitivity))
        case DiscreteGaussian():  # the same ρ, but not the same trade-off
            return events.ZCDpEvent(_above((m.sensitivity / m.sigma) ** 2 / 2))
        case DeclaredGdp():
            return events.GaussianDpEvent(_below(1 / m.mu))
        case DeclaredZcdp():
            return events.ZCDpEvent(_above(m.rho), _above(m.xi))
        case Pate():
            return events.ZCDpEvent(_above(m.queries / m.sigma**2))
        case TreeAggregation(participations=1):
            return events.SingleEpochTreeAggregationDpEvent(_below(m.noise_multiplier), m.steps)
        case DiscreteLaplace() if m.sensitivity.denominator == 1:
            return events.DiscreteLaplaceDpEvent(_above(1 / m.scale), int(m.sensitivity))
        case Laplace():
            return events.LaplaceDpEvent(_below(m.scale / m.sensitivity))
        case RandomizedResponse():
            return events.RandomizedResponseDpEvent(_below(2 * (1 - m.truth)), 2)
        case KaryResponse():
            return events.RandomizedResponseDpEvent(_below(m.noise), m.values)
    epsilon = _pure(m)
    if epsilon is None:
        raise OperationRejected(f"no DpEvent states `{type(replace(m, count=1)).__name__}`")
    return events.DiscreteLaplaceDpEvent(_above(epsilon), 1)


def _pure(m: Mechanism) -> Fraction | None:
    """The ε of a mechanism that is pure: integer noise moved by one loses exactly ±ε, the worst."""
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


def _less(value: float) -> float:
    """Below what a float computation may have rounded up."""
    return value * (1 - 2**-50)


def _more(value: float) -> float:
    return value * (1 + 2**-50)


def _below(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0)


def _above(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
