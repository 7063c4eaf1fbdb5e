"""The gate for Opacus with the real library on a small model, and attempts to bypass it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants.analysis.rdp import compute_rdp
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.gated.balances import balance
from tests.gated.pages import run_example
from tests.pdp.builders import started
from torch import nn
from torch.utils.data import DataLoader, Dataset

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.opacus import GatedTraining, gated_training
from dpolicy.pdp.decision_point import DecisionPoint

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off", "ignore:Using a non-full backward hook", "ignore:Full backward"
)

HEAD = """
dpolicy: 1
accounting: {delta: 1e-6}
units: {user: {relation: add-remove}}
schema: {attributes: {page: {risk: low}}}
"""
RULE = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
ORDER = 8
NOISE = 2.0


class Records(Dataset[tuple[torch.Tensor, torch.Tensor]]):  # type: ignore[misc]
    """Two hundred records that count reads, and can fail after a number of reads."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.reads = 0
        self.fails_after = fails_after

    def __len__(self) -> int:
        return 200

    def __getitem__(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        if self.fails_after is not None and self.reads > self.fails_after:
            raise OSError("the disk is gone")
        return torch.ones(4) * (position % 7), torch.tensor(position % 2)


def point_with(budget: str = "{renyi: {8: 100}}") -> DecisionPoint:
    return started(RULE % budget, head=HEAD)


def parts(records: Records | None = None) -> dict[str, Any]:
    module = nn.Linear(4, 2)
    return {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(records or Records(), batch_size=20),
    }


def plan_training(point: DecisionPoint, steps: int, **changes: Any) -> Any:
    gate = Gate(point, by="ml", attributes=["page"], unit="user")
    arguments = {**parts(), "noise_multiplier": NOISE, "max_grad_norm": 1.0, **changes}
    return gated_training(gate, steps=steps, **arguments)


def train(training: GatedTraining, steps: int) -> None:
    """Train a number of steps, over several epochs if necessary."""
    while steps:
        for inputs, targets in training.data_loader:
            train_step(training, inputs, targets)
            steps -= 1
            if not steps:
                return


def train_step(training: GatedTraining, inputs: Any, targets: Any) -> None:
    training.optimizer.zero_grad()
    backward(training, inputs, targets)
    training.optimizer.step()


def backward(training: GatedTraining, inputs: Any, targets: Any) -> None:
    nn.functional.cross_entropy(training.module(inputs), targets, reduction="sum").backward()


def charge(point: DecisionPoint) -> float:
    return balance(point, notion="renyi 8")


def opacus_loss(steps: int) -> float:
    """Return the loss of the steps according to Opacus."""
    return float(compute_rdp(q=0.1, noise_multiplier=NOISE, steps=steps, orders=float(ORDER)))


def weights(training: GatedTraining) -> list[torch.Tensor]:
    return [p.detach().clone() for p in training.module.parameters()]


def has_weights(training: GatedTraining, before: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, weights(training), strict=True))


# Charges of allowed trainings


def test_the_charge_equals_the_loss_of_opacus() -> None:
    point = point_with()
    with plan_training(point, steps=15) as training:
        assert charge(point) == pytest.approx(opacus_loss(15), rel=1e-9)
        before = weights(training)
        train(training, 15)
    assert training.steps_taken == 15
    assert not has_weights(training, before)
    assert charge(point) == pytest.approx(opacus_loss(15), rel=1e-9)
    assert charge(point) >= opacus_loss(15)


def test_the_accountant_of_opacus_still_counts() -> None:
    engine = PrivacyEngine(accountant="rdp")
    with plan_training(point_with(), steps=12, engine=engine, poisson_sampling=True) as training:
        train(training, 12)
    assert engine.accountant.history == [(NOISE, 0.1, 12)]


# No data is read before the reservation; data that was read is charged


def test_a_denied_training_reads_nothing() -> None:
    records = Records()
    with pytest.raises(Denied), plan_training(point_with(), steps=10**6, **parts(records)):
        raise AssertionError("it ran")
    assert records.reads == 0


def test_a_crash_while_reading_charges_all_planned_steps() -> None:
    point = point_with()
    with pytest.raises(OSError), plan_training(point, steps=15, **parts(Records(50))) as training:
        training.stop_early("ignored after an exception")
        train(training, 15)
    assert 0 < training.steps_taken < 15
    assert charge(point) == pytest.approx(opacus_loss(15), rel=1e-9)


# Steps


def test_an_extra_step_is_refused_before_it_has_any_effect() -> None:
    point = point_with()
    with plan_training(point, steps=3) as training:
        train(training, 3)
        before = weights(training)
        for parameter in training.module.parameters():
            parameter.grad = None
        with pytest.raises(OperationRejected, match="all 3 steps"):
            train(training, 1)
        assert has_weights(training, before)
    assert training.steps_taken == 3


def test_an_early_stop_with_a_reason_returns_budget() -> None:
    point = point_with()
    with plan_training(point, steps=15) as training:
        train(training, 5)
        training.stop_early("the shift was over")
    assert charge(point) == pytest.approx(opacus_loss(5), rel=1e-9)


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_no_step_is_taken_after_the_end(error: type[Exception] | None) -> None:
    with contextlib.suppress(ZeroDivisionError), plan_training(point_with(), steps=15) as training:
        train(training, 5)
        if error:
            raise error
        training.stop_early("the shift was over")
    before = weights(training)
    with pytest.raises(OperationRejected, match="the training is over"):
        train(training, 1)
    assert has_weights(training, before)


def test_an_early_stop_without_a_reason_returns_nothing() -> None:
    point = point_with()
    with plan_training(point, steps=15) as training:
        train(training, 5)
        with pytest.raises(OperationRejected, match="because"):
            training.stop_early(" ")
    assert charge(point) == pytest.approx(opacus_loss(15), rel=1e-9)


def test_a_training_without_steps_costs_one_step() -> None:
    """Opacus reads a record to determine its shape."""
    point = point_with()
    with plan_training(point, steps=15) as training:
        training.stop_early("there was no time")
    assert charge(point) == pytest.approx(opacus_loss(1), rel=1e-9)


def test_noise_may_increase_but_not_decrease() -> None:
    with plan_training(point_with(), steps=5) as training:
        training.optimizer.noise_multiplier = 2 * NOISE
        train(training, 1)
        for noise in (0.99 * NOISE, math.nan):
            training.optimizer.noise_multiplier = noise
            with pytest.raises(OperationRejected, match="below the reserved"):
                train(training, 1)
    assert training.steps_taken == 1


def test_a_batch_allows_one_step() -> None:
    with plan_training(point_with(), steps=5) as training:
        batch = next(iter(training.data_loader))
        train_step(training, *batch)
        with pytest.raises(OperationRejected, match="fresh sample"):
            train_step(training, *batch)
    assert training.steps_taken == 1


def test_unused_batches_allow_no_extra_steps() -> None:
    """Otherwise, a pass over the loader would allow several steps on one sample."""
    with plan_training(point_with(), steps=5) as training:
        batches = list(training.data_loader)
        assert len(batches) > 1
        train_step(training, *batches[0])
        with pytest.raises(OperationRejected, match="fresh sample"):
            train_step(training, *batches[0])
    assert training.steps_taken == 1


def test_a_step_uses_one_batch() -> None:
    with plan_training(point_with(), steps=5) as training:
        batches = iter(training.data_loader)
        training.optimizer.zero_grad()
        backward(training, *next(batches))
        with pytest.raises(ValueError, match="Poisson sampling is not compatible"):
            backward(training, *next(batches))
    with plan_training(point_with(), steps=5) as training:
        training.module.allow_grad_accumulation()
        batches = iter(training.data_loader)
        training.optimizer.zero_grad()
        backward(training, *next(batches))
        backward(training, *next(batches))
        with pytest.raises(OperationRejected, match="one batch"):
            training.optimizer.step()


# Attempts to bypass the gate


def test_an_additional_hook_replaces_no_other() -> None:
    engine, calls = PrivacyEngine(accountant="rdp"), []
    with plan_training(point_with(), steps=3, engine=engine) as training:
        training.optimizer.attach_step_hook(lambda optimizer: calls.append("step"))
        train(training, 3)
        with pytest.raises(OperationRejected, match="all 3 steps"):
            train(training, 1)
    assert calls == ["step"] * 3
    assert engine.accountant.history == [(NOISE, 0.1, 3)]


def test_removing_the_hook_changes_nothing() -> None:
    with plan_training(point_with(), steps=2) as training:
        training.optimizer.step_hook = None
        train(training, 2)
        with pytest.raises(OperationRejected, match="all 2 steps"):
            train(training, 1)


def test_virtual_steps_are_refused() -> None:
    with plan_training(point_with(), steps=5) as training:
        loader = training.data_loader._loader
        small = BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=1, optimizer=training.optimizer
        )
        with pytest.raises(OperationRejected, match="virtual steps"), small as split:
            for _ in split:
                pass


def without_poisson_sampling(arguments: dict[str, Any]) -> None:
    arguments["poisson_sampling"] = False


def adaptive_clipping(arguments: dict[str, Any]) -> None:
    arguments["clipping"] = "adaptive"


def own_noise_generator(arguments: dict[str, Any]) -> None:
    arguments["noise_generator"] = torch.Generator()


def random_data_for_empty_batches(arguments: dict[str, Any]) -> None:
    arguments["rand_on_empty"] = True


def ghost_clipping(arguments: dict[str, Any]) -> None:
    arguments["grad_sample_mode"] = "ghost"


def parameters_of_another_module(arguments: dict[str, Any]) -> None:
    arguments["optimizer"] = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


@pytest.mark.parametrize(
    "change",
    [
        without_poisson_sampling,
        adaptive_clipping,
        own_noise_generator,
        random_data_for_empty_batches,
        ghost_clipping,
        parameters_of_another_module,
    ],
)
def test_options_that_change_a_step_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    point, records = point_with(), Records()
    arguments = parts(records)
    change(arguments)
    with pytest.raises(OperationRejected), plan_training(point, steps=5, **arguments):
        raise AssertionError("it ran")
    assert records.reads == 0
    assert not point.entries


def test_other_relations_are_refused() -> None:
    gate = Gate(point_with(), relation="replace")
    arguments = {**parts(), "noise_multiplier": NOISE, "max_grad_norm": 1.0, "steps": 5}
    with pytest.raises(OperationRejected, match="not `replace`"), gated_training(gate, **arguments):
        pass


def test_the_example_of_the_page() -> None:
    point = point_with("{epsilon: 3}")
    arguments = parts()
    variables = run_example(
        "opacus",
        point=point,
        module=arguments["module"],
        optimizer=arguments["optimizer"],
        loader=arguments["data_loader"],
        loss=nn.CrossEntropyLoss(),
    )
    assert variables["training"].steps_taken == 20
    (entry,) = point.entries.values()
    assert entry.status == "committed"
