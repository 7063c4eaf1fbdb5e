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
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torch.utils.data import default_collate as collate

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


def draw_records(training: GatedTraining) -> Any:
    """Return the first batch that is not empty."""
    return next(batch for batch in training.data_loader if len(batch[0]))


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


def test_unused_batches_allow_no_step() -> None:
    """Otherwise, a pass over the loader would allow several steps on one sample."""
    with plan_training(point_with(), steps=5) as training:
        batches = [batch for batch in training.data_loader if len(batch[0])]
        assert len(batches) > 1
        with pytest.raises(OperationRejected, match="batches were drawn since the last step"):
            train_step(training, *batches[0])
    assert training.steps_taken == 0


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


# One row of gradients for each record of the sample


def test_a_batch_that_repeats_its_records_is_refused() -> None:
    """Each row is clipped to C, so a record in two rows moves the sum by 2C."""
    with plan_training(point_with(), steps=5) as training:
        before = weights(training)
        inputs, targets = draw_records(training)
        twice = torch.cat([inputs, inputs + 0.01]), torch.cat([targets, targets])
        with pytest.raises(OperationRejected, match="one row for each record"):
            train_step(training, *twice)
        assert has_weights(training, before)
    assert training.steps_taken == 0


def test_a_collate_function_that_repeats_records_is_refused() -> None:
    arguments = parts()
    views = DataLoader(Records(), batch_size=20, collate_fn=lambda rows: collate([*rows, *rows]))
    with plan_training(point_with(), steps=5, **{**arguments, "data_loader": views}) as training:
        inputs, targets = draw_records(training)
        with pytest.raises(OperationRejected, match="one row for each record"):
            train_step(training, inputs, targets)


def test_a_row_for_each_time_of_a_record_is_refused() -> None:
    """A module that receives a record as several rows has several clipped gradients for it."""
    with plan_training(point_with(), steps=5) as training:
        inputs, _ = draw_records(training)
        rows = inputs.repeat_interleave(3, dim=0)
        with pytest.raises(OperationRejected, match="one row for each record"):
            train_step(training, rows, torch.zeros(len(rows), dtype=torch.long))


def test_two_batches_in_one_backward_pass_are_refused() -> None:
    with plan_training(point_with(), steps=5) as training:
        before = weights(training)
        batches = iter(training.data_loader)
        (first, first_targets), (second, second_targets) = next(batches), next(batches)
        with pytest.raises(OperationRejected, match="batches were drawn"):
            train_step(
                training, torch.cat([first, second]), torch.cat([first_targets, second_targets])
            )
        half = torch.cat([first[::2], second[::2]])
        targets = torch.cat([first_targets[::2], second_targets[::2]])
        with pytest.raises(OperationRejected, match="batches were drawn"):
            train_step(training, half, targets)
        assert has_weights(training, before)


def test_an_empty_batch_may_be_skipped_or_used() -> None:
    arguments = parts()
    arguments["data_loader"] = DataLoader(Records(), batch_size=1)
    with plan_training(point_with(), steps=100, **arguments) as training:
        skipped = 0
        for inputs, targets in training.data_loader:
            if len(inputs) == 0 and skipped < 3:
                skipped += 1
            elif training.steps_taken < 100:
                train_step(training, inputs, targets)
    assert skipped == 3
    assert training.steps_taken > 50


def test_batches_of_workers_are_counted() -> None:
    loader = DataLoader(Records(), batch_size=20, num_workers=2)
    with plan_training(point_with(), steps=12, **{**parts(), "data_loader": loader}) as training:
        train(training, 12)
        inputs, targets = draw_records(training)
        with pytest.raises(OperationRejected, match="all 12 steps"):
            train_step(training, inputs, targets)


# Randomness of the caller


@pytest.mark.parametrize("seeded", ["program", "each step"])
def test_a_seed_of_the_program_determines_nothing(seeded: str) -> None:
    """With the noise and the sample known, one step would reveal the records."""
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        with plan_training(point_with(), steps=3) as training:
            sizes = []
            for inputs, targets in training.data_loader:
                if training.steps_taken == 3:
                    break
                if seeded == "each step":
                    torch.manual_seed(7)
                sizes.append(inputs)
                train_step(training, inputs, targets)
        results.append((weights(training), sizes))
    (first, first_batches), (second, second_batches) = results
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first_batches, second_batches, strict=True))


def test_a_seeded_data_loader_is_refused() -> None:
    seeded = torch.Generator().manual_seed(7)
    for options in ({"generator": seeded}, {"sampler": RandomSampler(Records(), generator=seeded)}):
        point, records = point_with(), Records()
        arguments = {**parts(), "data_loader": DataLoader(records, batch_size=20, **options)}
        with (
            pytest.raises(OperationRejected, match="`generator`"),
            plan_training(point, steps=5, **arguments),
        ):
            raise AssertionError("it ran")
        assert records.reads == 0
        assert not point.entries


def test_a_replaced_noise_generator_is_refused() -> None:
    with plan_training(point_with(), steps=5) as training:
        training.optimizer.generator = torch.Generator().manual_seed(7)
        with pytest.raises(OperationRejected, match="noise generator"):
            train(training, 1)


# State that the optimizer does not train


class Averaging(nn.Module):  # type: ignore[misc]
    """Module that keeps a maximum of its inputs, in a buffer or in a frozen parameter."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("scale", torch.ones(4))
        if frozen:
            self.largest = nn.Parameter(torch.zeros(4), requires_grad=False)
        else:
            self.register_buffer("largest", torch.zeros(4))
        self.keeps = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.keeps and len(inputs):
            with torch.no_grad():
                self.largest.copy_(torch.maximum(self.largest, inputs.amax(0)))
        return self.linear(inputs * self.scale)


def averaging_parts(module: Averaging) -> dict[str, Any]:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return {**parts(), "module": module, "optimizer": torch.optim.SGD(trained, lr=0.1)}


def test_a_buffer_that_keeps_records_is_refused() -> None:
    module = Averaging()
    with plan_training(point_with(), steps=5, **averaging_parts(module)) as training:
        train(training, 2)
        module.keeps = True
        with pytest.raises(OperationRejected, match="`largest` of the module has changed"):
            train(training, 1)
        assert torch.equal(module.largest, torch.zeros(4))
    assert training.steps_taken == 2


def test_a_buffer_that_changes_after_the_last_step_is_restored() -> None:
    point, module = point_with(), Averaging()
    with (
        pytest.raises(OperationRejected, match="has changed outside the optimizer"),
        plan_training(point, steps=5, **averaging_parts(module)) as training,
    ):
        train(training, 2)
        module.keeps = True
        training.module(torch.full((1, 4), 123.0))
        training.stop_early("ignored after a refusal")
    assert torch.equal(module.largest, torch.zeros(4))
    assert charge(point) == pytest.approx(opacus_loss(5), rel=1e-9)


def test_a_frozen_parameter_that_keeps_records_is_refused() -> None:
    module = Averaging(frozen=True)
    with (
        pytest.raises(OperationRejected, match="`largest` of the module has changed"),
        plan_training(point_with(), steps=5, **averaging_parts(module)) as training,
    ):
        train(training, 2)
        module.keeps = True
        train(training, 1)
    assert training.steps_taken == 2


def test_a_record_that_overflows_does_not_reach_the_model() -> None:
    """Clipping multiplies an infinite gradient by zero, which is NaN in every parameter."""
    with plan_training(point_with(), steps=5) as training:
        inputs, targets = draw_records(training)
        inputs[0] = math.inf
        train_step(training, inputs, targets)
        assert all(torch.isfinite(values).all() for values in weights(training))


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
