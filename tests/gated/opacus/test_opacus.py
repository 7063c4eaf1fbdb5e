"""Opacus behind the gate: the real library on a small model, and its ways round."""

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
    """Two hundred records that know how often they were read, and may fail."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.reads = 0
        self.fails_after = fails_after

    def __len__(self) -> int:
        return 200

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        if self.fails_after is not None and self.reads > self.fails_after:
            raise OSError("the disk is gone")
        return torch.ones(4) * (place % 7), torch.tensor(place % 2)


def point_with(budget: str = "{renyi: {8: 100}}") -> DecisionPoint:
    return started(RULE % budget, head=HEAD)


def parts(records: Records | None = None) -> dict[str, Any]:
    module = nn.Linear(4, 2)
    return {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(records or Records(), batch_size=20),
    }


def planned(point: DecisionPoint, steps: int, **more: Any) -> Any:
    gate = Gate(point, by="ml", attributes=["page"], unit="user")
    said = {**parts(), "noise_multiplier": NOISE, "max_grad_norm": 1.0, **more}
    return gated_training(gate, steps=steps, **said)


def take(made: GatedTraining, steps: int) -> None:
    """Train, over as many epochs as it takes."""
    while steps:
        for inputs, targets in made.data_loader:
            take_on(made, inputs, targets)
            steps -= 1
            if not steps:
                return


def take_on(made: GatedTraining, inputs: Any, targets: Any) -> None:
    made.optimizer.zero_grad()
    backward(made, inputs, targets)
    made.optimizer.step()


def backward(made: GatedTraining, inputs: Any, targets: Any) -> None:
    nn.functional.cross_entropy(made.module(inputs), targets, reduction="sum").backward()


def spent(point: DecisionPoint) -> float:
    (balance,) = point.budgets()
    found = balance.spent["renyi 8"]
    assert found is not None
    return found


def by_opacus(steps: int) -> float:
    """What Opacus's own analysis says of so many steps."""
    return float(compute_rdp(q=0.1, noise_multiplier=NOISE, steps=steps, orders=float(ORDER)))


def weights(made: GatedTraining) -> list[torch.Tensor]:
    return [p.detach().clone() for p in made.module.parameters()]


def unchanged(made: GatedTraining, before: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, weights(made), strict=True))


# An allowed run charges the right cost


def test_a_training_costs_what_opacus_says() -> None:
    point = point_with()
    with planned(point, steps=15) as made:
        assert spent(point) == pytest.approx(by_opacus(15), rel=1e-9)
        before = weights(made)
        take(made, 15)
    assert made.steps_taken == 15
    assert not unchanged(made, before)
    assert spent(point) == pytest.approx(by_opacus(15), rel=1e-9)
    assert spent(point) >= by_opacus(15)


def test_the_accountant_of_opacus_counts_along() -> None:
    engine = PrivacyEngine(accountant="rdp")
    with planned(point_with(), steps=12, engine=engine, poisson_sampling=True) as made:
        take(made, 12)
    assert engine.accountant.history == [(NOISE, 0.1, 12)]


# Nothing is read before it is allowed, and what was read is charged


def test_a_denied_training_reads_nothing() -> None:
    records = Records()
    with pytest.raises(Denied), planned(point_with(), steps=10**6, **parts(records)):
        raise AssertionError("it ran")
    assert records.reads == 0


def test_a_crash_while_reading_charges_the_plan() -> None:
    point = point_with()
    with pytest.raises(OSError), planned(point, steps=15, **parts(Records(50))) as made:
        made.stopped("not believed after an exception")
        take(made, 15)
    assert 0 < made.steps_taken < 15
    assert spent(point) == pytest.approx(by_opacus(15), rel=1e-9)


# Steps


def test_a_step_too_many_is_refused_before_it_does_anything() -> None:
    point = point_with()
    with planned(point, steps=3) as made:
        take(made, 3)
        before = weights(made)
        for parameter in made.module.parameters():
            parameter.grad = None
        with pytest.raises(OperationRejected, match="all 3 steps"):
            take(made, 1)
        assert unchanged(made, before)
    assert made.steps_taken == 3


def test_a_stop_that_gives_its_reason_gives_the_rest_back() -> None:
    point = point_with()
    with planned(point, steps=15) as made:
        take(made, 5)
        made.stopped("the shift was over")
    assert spent(point) == pytest.approx(by_opacus(5), rel=1e-9)


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_no_step_is_taken_after_the_end(error: type[Exception] | None) -> None:
    with contextlib.suppress(ZeroDivisionError), planned(point_with(), steps=15) as made:
        take(made, 5)
        if error:
            raise error
        made.stopped("the shift was over")
    before = weights(made)
    with pytest.raises(OperationRejected, match="training is over"):
        take(made, 1)
    assert unchanged(made, before)


def test_a_stop_without_a_reason_does_not() -> None:
    point = point_with()
    with planned(point, steps=15) as made:
        take(made, 5)
        with pytest.raises(OperationRejected, match="because"):
            made.stopped(" ")
    assert spent(point) == pytest.approx(by_opacus(15), rel=1e-9)


def test_a_training_that_never_began_costs_a_step() -> None:
    """Opacus has read a record to learn its shape."""
    point = point_with()
    with planned(point, steps=15) as made:
        made.stopped("there was no time")
    assert spent(point) == pytest.approx(by_opacus(1), rel=1e-9)


def test_noise_may_grow_and_not_shrink() -> None:
    with planned(point_with(), steps=5) as made:
        made.optimizer.noise_multiplier = 2 * NOISE
        take(made, 1)
        for less in (0.99 * NOISE, math.nan):
            made.optimizer.noise_multiplier = less
            with pytest.raises(OperationRejected, match="below the reserved"):
                take(made, 1)
    assert made.steps_taken == 1


def test_a_batch_takes_one_step() -> None:
    with planned(point_with(), steps=5) as made:
        batch = next(iter(made.data_loader))
        take_on(made, *batch)
        with pytest.raises(OperationRejected, match="fresh sample"):
            take_on(made, *batch)
    assert made.steps_taken == 1


def test_batches_that_are_only_looked_at_allow_no_more_steps() -> None:
    """An accuracy pass over the loader would otherwise be credit for steps on one sample."""
    with planned(point_with(), steps=5) as made:
        held = list(made.data_loader)
        assert len(held) > 1
        take_on(made, *held[0])
        with pytest.raises(OperationRejected, match="fresh sample"):
            take_on(made, *held[0])
    assert made.steps_taken == 1


def test_a_step_takes_one_batch() -> None:
    with planned(point_with(), steps=5) as made:
        batches = iter(made.data_loader)
        made.optimizer.zero_grad()
        backward(made, *next(batches))
        with pytest.raises(ValueError, match="Poisson sampling is not compatible"):
            backward(made, *next(batches))
    with planned(point_with(), steps=5) as made:
        made.module.allow_grad_accumulation()
        batches = iter(made.data_loader)
        made.optimizer.zero_grad()
        backward(made, *next(batches))
        backward(made, *next(batches))
        with pytest.raises(OperationRejected, match="one batch"):
            made.optimizer.step()


# Ways round


def test_a_hook_of_ones_own_replaces_nothing() -> None:
    engine, seen = PrivacyEngine(accountant="rdp"), []
    with planned(point_with(), steps=3, engine=engine) as made:
        made.optimizer.attach_step_hook(lambda optimizer: seen.append("step"))
        take(made, 3)
        with pytest.raises(OperationRejected, match="all 3 steps"):
            take(made, 1)
    assert seen == ["step"] * 3
    assert engine.accountant.history == [(NOISE, 0.1, 3)]


def test_no_hook_at_all_changes_nothing() -> None:
    with planned(point_with(), steps=2) as made:
        made.optimizer.step_hook = None
        take(made, 2)
        with pytest.raises(OperationRejected, match="all 2 steps"):
            take(made, 1)


def test_virtual_steps_are_refused() -> None:
    with planned(point_with(), steps=5) as made:
        loader = made.data_loader._loader
        small = BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=1, optimizer=made.optimizer
        )
        with pytest.raises(OperationRejected, match="virtual steps"), small as split:
            for _ in split:
                pass


def unpoisson(said: dict[str, Any]) -> None:
    said["poisson_sampling"] = False


def adaptive(said: dict[str, Any]) -> None:
    said["clipping"] = "adaptive"


def seeded(said: dict[str, Any]) -> None:
    said["noise_generator"] = torch.Generator()


def filled(said: dict[str, Any]) -> None:
    said["rand_on_empty"] = True


def ghost(said: dict[str, Any]) -> None:
    said["grad_sample_mode"] = "ghost"


def foreign(said: dict[str, Any]) -> None:
    said["optimizer"] = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


@pytest.mark.parametrize("change", [unpoisson, adaptive, seeded, filled, ghost, foreign])
def test_what_changes_a_step_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    point, records = point_with(), Records()
    said = parts(records)
    change(said)
    with pytest.raises(OperationRejected), planned(point, steps=5, **said):
        raise AssertionError("it ran")
    assert records.reads == 0
    assert not point.entries


def test_other_relations_are_refused() -> None:
    gate = Gate(point_with(), relation="replace")
    said = {**parts(), "noise_multiplier": NOISE, "max_grad_norm": 1.0, "steps": 5}
    with pytest.raises(OperationRejected, match="not `replace`"), gated_training(gate, **said):
        pass


def test_the_example_of_the_page() -> None:
    point = point_with("{epsilon: 3}")
    said = parts()
    known = run_example(
        "opacus",
        point=point,
        module=said["module"],
        optimizer=said["optimizer"],
        loader=said["data_loader"],
        loss=nn.CrossEntropyLoss(),
    )
    assert known["made"].steps_taken == 20
    (entry,) = point.entries.values()
    assert entry.status == "committed"
