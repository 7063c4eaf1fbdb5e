"""The gate for dp_accounting, and charges compared with the accountants of the library."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attr
import dp_accounting as dpa
import pytest
from dp_accounting import dp_event as events
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.dp_accounting import (
    GatedPrivacyAccountant,
    event_from_mechanism,
    mechanisms_from_event,
)
from dpolicy.integrations.dp_accounting.event_conversion import REFUSAL_REASONS
from dpolicy.integrations.gate import Gate
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.cost import single_run_bounds
from dpolicy.privacy.mechanisms.divergence_bounds import smallest_curve
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.python.python_values import to_plain_body

Neighbours = dpa.NeighboringRelation
ADD, REPLACE, ZERO = (
    Neighbours.ADD_OR_REMOVE_ONE,
    Neighbours.REPLACE_ONE,
    Neighbours.REPLACE_SPECIAL,
)
HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {relation: %s}}
schema: {attributes: {page: {risk: low}}}
"""
RULE = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
ORDER = 8

GAUSSIAN = events.GaussianDpEvent(1.5)
LAPLACE = events.LaplaceDpEvent(2.0)
SAMPLED = events.PoissonSampledDpEvent(0.02, GAUSSIAN)


def point_with(budget: str, relation: str = "add-remove") -> DecisionPoint:
    return started(RULE % budget, head=HEAD % relation)


def compare_charges(event: Any, relation: Any = ADD, count: int = 1) -> tuple[float, float]:
    """Return the charge of the ledger and the loss of the accountant, both at the same order."""
    ours = "replace" if relation is REPLACE else "add-remove"
    point = point_with("{renyi: {8: 100000}}", ours)
    inner = dpa.rdp.RdpAccountant([ORDER], relation)
    gate = Gate(point, attributes=["page"], unit="user")
    assert GatedPrivacyAccountant(gate, inner).compose(event, count).ledger is not None
    (balance,) = point.budgets()
    spent = balance.spent["renyi 8"]
    assert spent is not None
    return spent, float(inner._rdp[0])


# Charges of allowed events


@pytest.mark.parametrize(
    "event",
    [
        GAUSSIAN,
        LAPLACE,
        SAMPLED,
        events.SelfComposedDpEvent(SAMPLED, 1000),
        events.ComposedDpEvent([GAUSSIAN, LAPLACE, events.NoOpDpEvent()]),
        events.SelfComposedDpEvent(events.ComposedDpEvent([GAUSSIAN, SAMPLED]), 3),
        events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(GAUSSIAN, 4)),
        events.PoissonSampledDpEvent(
            0.1, events.ComposedDpEvent([GAUSSIAN, events.GaussianDpEvent(3.0)])
        ),
        events.PoissonSampledDpEvent(1.0, GAUSSIAN),
        events.ZCDpEvent(0.3),
        events.ZCDpEvent(0.3, 0.1),
    ],
)
def test_the_ledger_agrees_with_the_accountant(event: Any) -> None:
    ours, theirs = compare_charges(event, count=2)
    assert ours >= theirs * (1 - 1e-12)
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_a_record_that_becomes_zero_is_removed_from_a_sum() -> None:
    ours, theirs = compare_charges(events.SelfComposedDpEvent(SAMPLED, 10), ZERO)
    assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 7, 8, [3, 20, 5]])
def test_trees(steps: Any) -> None:
    event = events.SingleEpochTreeAggregationDpEvent(2.0, steps)
    ours, theirs = compare_charges(event, ZERO)
    assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(("noise", "values"), [(0.5, 2), (0.1, 10), (0.9, 3)])
def test_randomized_response(noise: float, values: int) -> None:
    ours, theirs = compare_charges(events.RandomizedResponseDpEvent(noise, values), REPLACE)
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_a_changed_record_moves_a_sum_twice_as_far() -> None:
    """A norm bounds an added or removed value; dp_accounting uses it for a changed value too."""
    ours, theirs = compare_charges(GAUSSIAN, REPLACE)
    assert ours == pytest.approx(4 * theirs, rel=1e-9)


def test_integer_noise() -> None:
    (fields,) = mechanisms_from_event(events.DiscreteLaplaceDpEvent(0.5, 3))
    assert fields["kind"] == "discrete-laplace"
    assert 1 / fields["scale"] >= Fraction(1, 2)
    assert fields["sensitivity"] == 3


def test_an_empty_event_costs_nothing() -> None:
    point = point_with("{epsilon: 1}")
    accountant = GatedPrivacyAccountant(Gate(point), dpa.rdp.RdpAccountant())
    for event in (events.NoOpDpEvent(), events.PoissonSampledDpEvent(0.0, GAUSSIAN)):
        accountant.compose(event)
    assert not point.entries


# Nothing runs before the reservation; a mechanism that ran is charged


def test_a_denied_event_is_not_composed() -> None:
    point = point_with("{epsilon: 1, delta: 1e-6}")
    accountant = GatedPrivacyAccountant(Gate(point, unit="user"), dpa.rdp.RdpAccountant())
    ran = []
    with pytest.raises(Denied), accountant.running(SAMPLED, count=10**6):
        ran.append("no")
    assert not ran
    assert accountant.ledger == events.NoOpDpEvent()


def test_an_exception_stays_charged() -> None:
    point = point_with("{epsilon: 1, delta: 1e-6}")
    accountant = GatedPrivacyAccountant(Gate(point, unit="user"), dpa.rdp.RdpAccountant())
    with pytest.raises(ZeroDivisionError), accountant.running(SAMPLED, count=10):
        raise ZeroDivisionError
    (entry,) = point.entries.values()
    assert entry.status == "committed"
    assert accountant.get_epsilon(1e-6) > 0


def test_an_event_that_the_accountant_does_not_support_is_not_charged() -> None:
    point = point_with("{epsilon: 10}")
    accountant = GatedPrivacyAccountant(Gate(point, unit="user"), dpa.rdp.RdpAccountant())
    event = events.DiscreteLaplaceDpEvent(0.5, 1)
    assert not accountant.supports(event)
    with pytest.raises(dpa.UnsupportedEventError):
        accountant.compose(event)
    assert not point.entries
    exact = GatedPrivacyAccountant(Gate(point, unit="user"), dpa.pld.PLDAccountant())
    assert exact.compose(event).get_delta(0.5) <= 1e-9


# Refused events


@attr.s(frozen=True, slots=True, auto_attribs=True)
class Louder(events.GaussianDpEvent):  # type: ignore[misc]
    """Event class that is derived outside the library."""

    times: int = 2


def events_to_refuse() -> list[Any]:
    batch = {"source_dataset_size": 100, "sample_size": 10, "event": GAUSSIAN}
    return [
        events.NonPrivateDpEvent(),
        events.UnsupportedDpEvent(),
        events.SampledWithReplacementDpEvent(**batch),
        events.SampledWithoutReplacementDpEvent(**batch),
        events.TruncatedSubsampledGaussianDpEvent(100, 0.1, 12, 1.0),
        events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
        events.RepeatAndSelectDpEvent(GAUSSIAN, 5, 1),
        Louder(1.0),  # type: ignore[arg-type]
        events.GaussianDpEvent(0.0),
        events.SelfComposedDpEvent(GAUSSIAN, -1),
        events.SelfComposedDpEvent(GAUSSIAN, 0),
        events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(GAUSSIAN, -3)]),
        events.PoissonSampledDpEvent(0.1, events.ComposedDpEvent([LAPLACE, GAUSSIAN])),
        events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(LAPLACE, 2)),
        events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(SAMPLED, 2)),
        events.PoissonSampledDpEvent(1.1, GAUSSIAN),
        events.RandomizedResponseDpEvent(0.5, 2),
    ]


@pytest.mark.parametrize("event", events_to_refuse())
def test_events_that_cannot_be_charged_soundly(event: Any) -> None:
    with pytest.raises(OperationRejected):
        mechanisms_from_event(event)


def test_every_refusal_has_a_reason() -> None:
    names = {type(event).__name__ for event in events_to_refuse()}
    assert set(REFUSAL_REASONS) <= names


CONVERTIBLE = {
    *("NoOpDpEvent", "GaussianDpEvent", "LaplaceDpEvent", "DiscreteLaplaceDpEvent", "ZCDpEvent"),
    *("RandomizedResponseDpEvent", "SingleEpochTreeAggregationDpEvent"),
    *("ComposedDpEvent", "SelfComposedDpEvent", "PoissonSampledDpEvent"),
}


def test_every_event_of_the_library_is_converted_or_refused() -> None:
    """A new event type of dp_accounting makes this test fail."""
    names = {name for name in vars(events) if name.endswith("Event")} - {"DpEvent"}
    assert names == CONVERTIBLE | set(REFUSAL_REASONS)


def test_losses_for_zeroed_records_only_are_refused() -> None:
    for event in (events.ZCDpEvent(0.1), events.RandomizedResponseDpEvent(0.5, 2)):
        with pytest.raises(OperationRejected, match="becomes zero"):
            mechanisms_from_event(event, zeroed=True)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, float("inf"), float("nan"), "2", None])
def test_a_count_cannot_return_budget(count: Any) -> None:
    point = point_with("{epsilon: 10}")
    accountant = GatedPrivacyAccountant(Gate(point, unit="user"), dpa.rdp.RdpAccountant())
    with pytest.raises(OperationRejected, match="`count` must be an integer of at least 1"):
        accountant.compose(GAUSSIAN, count)
    with pytest.raises(OperationRejected, match="reserve the cost"):
        accountant._maybe_compose(GAUSSIAN, 1, True)
    assert not point.entries


def test_the_gate_and_the_accountant_have_the_same_relation() -> None:
    gate = Gate(point_with("{epsilon: 1}"), relation="change")
    with pytest.raises(OperationRejected, match="`add-remove`, not `change`"):
        GatedPrivacyAccountant(gate, dpa.rdp.RdpAccountant())


# Conversion in both directions


def mechanism(**fields: Any) -> Mechanism:
    parsed, problems = parse_mechanism(to_plain_body(fields))
    assert parsed is not None, problems
    return parsed


MECHANISMS = [
    mechanism(kind="gaussian", sigma=3, sensitivity=2, count=5),
    mechanism(kind="laplace", scale=3, sensitivity=0.7),
    mechanism(kind="discrete-laplace", scale=3, sensitivity=2),
    mechanism(kind="discrete-laplace", scale=3, sensitivity=1.5),
    mechanism(kind="dp-sgd", **{"noise-multiplier": 1.1, "sampling-rate": 0.01, "steps": 100}),
    mechanism(kind="tree-aggregation", **{"noise-multiplier": 1.1, "steps": 100}),
    mechanism(kind="declared", rho=0.1, xi=0.01),
    mechanism(kind="declared", mu=0.3),
    mechanism(kind="declared", epsilon=0.3, count=2),
    mechanism(kind="discrete-gaussian", sigma=3),
    mechanism(kind="pate", sigma=40, queries=100),
    mechanism(kind="exponential", epsilon=0.3),
    mechanism(kind="report-noisy-max", epsilon=0.3, noise="laplace"),
    mechanism(
        kind="sparse-vector", **{"epsilon-threshold": 0.1, "epsilon-queries": 0.2, "cutoff": 3}
    ),
    mechanism(kind="gaussian", sigma=3, **{"sampling-rate": 0.1}),
]


@pytest.mark.parametrize("original", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_round_trip_never_lowers_the_loss(original: Mechanism) -> None:
    (fields,) = mechanisms_from_event(event_from_mechanism(original))
    converted = mechanism(**fields)
    for order in (2, 8, 64):
        before, after = (divergence(m, order) for m in (original, converted))
        assert after >= before * (1 - 1e-12)


@pytest.mark.parametrize("fields", [{"truth": 0.75}, {"values": 5, "noise": 0.3}])
def test_a_round_trip_of_randomized_response(fields: dict[str, Any]) -> None:
    original = mechanism(kind="randomized-response", **fields)
    (converted,) = mechanisms_from_event(
        event_from_mechanism(original), NeighbouringRelation.REPLACE
    )
    assert divergence(mechanism(**converted), 8) == pytest.approx(divergence(original, 8), rel=1e-9)


def divergence(m: Mechanism, order: int) -> float:
    """Return the Rényi divergence of all runs."""
    return m.run_count * smallest_curve(single_run_bounds(m, 1, NeighbouringRelation.ADD_REMOVE))(
        order
    )


@pytest.mark.parametrize(
    "original",
    [
        mechanism(kind="declared", epsilon=0.3, delta=1e-6),
        mechanism(kind="declared", renyi={2: 0.1}),
        mechanism(
            kind="tree-aggregation", **{"noise-multiplier": 1, "steps": 5, "participations": 2}
        ),
    ],
)
def test_mechanisms_without_an_event(original: Mechanism) -> None:
    with pytest.raises(OperationRejected, match="no DpEvent"):
        event_from_mechanism(original)


def test_the_example_of_the_page() -> None:
    point = point_with("{epsilon: 3, delta: 1e-6}")
    variables = run_example("dp-accounting", point=point, train=lambda steps: f"{steps} steps")
    assert variables["model"] == "1000 steps"
    (entry,) = point.entries.values()
    assert entry.status == "committed"
