"""A training with Opacus → a release of its planned steps, none of which can be exceeded.

The steps are reserved before Opacus reads its first record. Each is counted where the optimizer
begins it, before noise is drawn and parameters change, and not in the optimizer's one slot for a
hook, which anybody may take. What a plan assumes is checked at each step: the noise, one Poisson
sample a step and one step a sample (theory 3.6). Assumed: a record is what the unit says, and the
number of records is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator

from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.integrations.float_rounding import round_down, round_up
from dpolicy.integrations.gate import Gate

#: What may be passed on to Opacus. The rest changes what a step is, or how it is sampled.
OPTIONS = frozenset({"batch_first", "loss_reduction", "grad_sample_mode"})

#: Ways to compute the gradients of each record that leave clipping to the optimizer.
MODES = frozenset({"hooks", "functorch", "ew"})


class GatedTraining:
    """What Opacus made private, and how much of the plan is left."""

    def __init__(self, steps: int, noise_multiplier: float) -> None:
        self.steps_taken = 0
        self.module: Any = None
        self.optimizer: Any = None
        self.data_loader: Any = None
        self.because: str | None = None
        self._steps = steps
        self._noise = noise_multiplier
        self._fresh = False
        self._open = True

    def stop_early(self, because: str) -> None:
        """Say why fewer steps are taken than planned: by outputs alone, or nothing of the data.

        Only then is the rest given back (theory 7). A loss on private data is no such reason.
        """
        if not because.strip():
            raise OperationRejected("say `because`: what made the training stop must be attested")
        self.because = because

    def _draw(self, loader: Any) -> Iterator[Any]:
        for batch in loader:
            self._fresh = True  # batches that are only looked at give no right to more steps
            yield batch

    def _begin(self, optimizer: Any) -> None:
        """Count a step, or refuse it before it does anything."""
        if not self._open:
            raise OperationRejected("the training is over; what is run now is another release")
        if self.steps_taken >= self._steps:
            raise OperationRejected(f"all {self._steps} steps that were reserved have been taken")
        if not optimizer.noise_multiplier >= self._noise:  # NaN is no noise
            said = f"`{optimizer.noise_multiplier}`, below the reserved `{self._noise}`"
            raise OperationRejected(f"the noise multiplier is {said}")
        if optimizer.accumulated_iterations != 1:
            raise OperationRejected("a step takes one batch: several are not one Poisson sample")
        if not self._fresh:
            raise OperationRejected("a batch takes one step: the next needs a fresh sample")
        self._fresh = False
        self.steps_taken += 1


@contextmanager
def gated_training(
    gate: Gate,
    *,
    module: Any,
    optimizer: Any,
    data_loader: Any,
    noise_multiplier: float,
    max_grad_norm: float,
    steps: int,
    name: str = "training",
    engine: PrivacyEngine | None = None,
    poisson_sampling: bool = True,
    **options: Any,
) -> Iterator[GatedTraining]:
    """Reserve so many steps, make a training private, and commit it when the block ends.

    The arguments are those of `PrivacyEngine.make_private`, and `steps`. All steps are charged,
    unless the training says that it `stopped`.
    """
    if not poisson_sampling:
        raise OperationRejected(
            "batches that are not Poisson samples cost more than is known (theory 3.6)"
        )
    _check(gate, module, optimizer, options)
    made = GatedTraining(steps, noise_multiplier)
    rate = 1 / len(data_loader)
    planned = replace(gate, relation="add-remove")
    with planned.reserve(name, _stated(planned, noise_multiplier, rate, steps)) as run:
        _make_private(
            made,
            engine or PrivacyEngine(accountant="rdp"),
            rate,
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            **options,
        )
        try:
            yield made
        finally:
            made._open = False
        if made.because and made.steps_taken < steps:
            taken = max(1, made.steps_taken)
            run.report_used(_stated(planned, noise_multiplier, rate, taken))


def _check(gate: Gate, module: Any, optimizer: Any, options: dict[str, Any]) -> None:
    """Everything that can be refused before anything is reserved."""
    if gate.relation not in (None, "add-remove"):
        raise OperationRejected(f"Opacus bounds what is added or removed, not `{gate.relation}`")
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise OperationRejected(f"`{unknown[0]}` is not passed on: it changes what a step costs")
    if options.get("grad_sample_mode", "hooks") not in MODES:
        raise OperationRejected(f"`grad_sample_mode` must be one of {', '.join(sorted(MODES))}")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise OperationRejected("a training on several machines is not gated")
    ModuleValidator.validate(module, strict=True)
    held = {id(parameter) for parameter in module.parameters()}
    if any(id(p) not in held for group in optimizer.param_groups for p in group["params"]):
        raise OperationRejected("the optimizer has parameters that are not the module's")


def _stated(gate: Gate, noise: float, rate: float, steps: int) -> dict[str, Any]:
    return gate.mechanism_fields(
        {
            "kind": "dp-sgd",
            "noise-multiplier": round_down(noise),
            "sampling-rate": min(round_up(rate), 1),
            "steps": steps,
        }
    )


def _make_private(
    made: GatedTraining, engine: PrivacyEngine, rate: float, **arguments: Any
) -> None:
    """Let Opacus do its part, and put the plan in front of every step."""
    module, optimizer, loader = engine.make_private(poisson_sampling=True, **arguments)
    if type(optimizer) is not DPOptimizer or not isinstance(loader, DPDataLoader):
        raise InvariantBroken("Opacus made something else than was asked for")
    if loader.sample_rate > rate:
        raise InvariantBroken("Opacus samples more than was reserved")
    optimizer.__class__ = _GatedOptimizer
    optimizer.training = made
    made.module, made.optimizer, made.data_loader = module, optimizer, _Batches(made, loader)


class _Batches:
    """The batches of a loader, counted as they are handed out."""

    def __init__(self, made: GatedTraining, loader: Any) -> None:
        self._made = made
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self._made._draw(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


class _GatedOptimizer(DPOptimizer):  # type: ignore[misc]
    """An optimizer that begins no step outside of its plan."""

    training: GatedTraining
    step_hook: Callable[[Any], None] | None

    def pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        """Clip, add noise, and tell the accountant: if the plan has another step."""
        self.training._begin(self)
        return super().pre_step(closure)

    def attach_step_hook(self, fn: Callable[[Any], None]) -> None:
        """Another hook, after those that are there: Opacus would drop its accountant for it."""
        before = self.step_hook

        def both(optimizer: Any) -> None:
            if before is not None:
                before(optimizer)
            fn(optimizer)

        self.step_hook = both

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """Nothing sees which batches a step gathers when others are skipped, so none may be."""
        if do_skip:
            raise OperationRejected(
                "virtual steps are not gated: a step could gather several samples"
            )
