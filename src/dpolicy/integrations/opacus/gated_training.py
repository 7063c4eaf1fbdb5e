"""Gate for Opacus: reserves the planned steps of a training and refuses any further step.

The steps are reserved before Opacus reads its first record. The gate counts a step when the
optimizer begins it, before it draws noise and changes parameters. It does not use the optimizer's
single hook, because other code can replace that hook. At each step the gate checks the assumptions
of the plan: the noise, one Poisson sample per step, one step per sample and one row of gradients
per record (theory 3.6). Noise and samples come from generators with fresh seeds, so that a seed of
the program does not determine them. Assumptions that are not checked: a record is one unit, the
number of records is public, and the gradient of a row depends on its own record only.
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
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from opacus.validators import ModuleValidator

from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.integrations.float_rounding import round_down, round_up
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.opacus.drawn_batches import CountingSampler, DrawnBatches
from dpolicy.integrations.opacus.untrained_state import UntrainedState
from dpolicy.text.summaries import html_line, one_line

#: Options that are passed on to Opacus. Others change a step or its sampling.
OPTIONS = frozenset({"batch_first", "loss_reduction", "grad_sample_mode"})

#: Ways to compute per-record gradients that leave clipping to the optimizer.
MODES = frozenset({"hooks", "functorch", "ew"})


class GatedTraining:
    """Private module, optimizer and data loader, and the steps that were taken."""

    def __init__(self, steps: int, noise_multiplier: float) -> None:
        self.steps_taken = 0
        self.module: Any = None
        self.optimizer: Any = None
        self.data_loader: Any = None
        self.because: str | None = None
        self._steps = steps
        self._noise = noise_multiplier
        self._batches = DrawnBatches()
        self._untrained: UntrainedState | None = None
        self._generator: torch.Generator | None = None
        self._open = True

    def __repr__(self) -> str:
        return one_line(self, f"{self.steps_taken} of {self._steps} steps taken")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def stop_early(self, because: str) -> None:
        """Charge only the steps that were taken; `because` is the reason to stop.

        This is sound only if the reason depends on outputs alone or not on the data (theory 7). A
        loss on private data is not such a reason.
        """
        if not because.strip():
            raise OperationRejected(
                "`because` is required: it attests why the training stopped early"
            )
        self.because = because

    def _begin_step(self, optimizer: Any) -> None:
        """Count a step, or refuse it before it has any effect."""
        if not self._open:
            raise OperationRejected("the training is over; a further step is another release")
        if self.steps_taken >= self._steps:
            raise OperationRejected(f"all {self._steps} steps that were reserved have been taken")
        if not optimizer.noise_multiplier >= self._noise:  # Also true for NaN.
            raise OperationRejected(
                f"the noise multiplier is `{optimizer.noise_multiplier}`, below the reserved "
                f"`{self._noise}`"
            )
        if optimizer.accumulated_iterations != 1:
            raise OperationRejected(
                "a step must use one batch: several batches are not one Poisson sample"
            )
        if optimizer.generator is not self._generator:
            raise OperationRejected("the noise generator was replaced: its noise can be repeated")
        self._batches.check_step(optimizer.grad_samples)
        self._check_untrained_state()
        self._batches.use()
        self.steps_taken += 1

    def _check_untrained_state(self) -> None:
        if self._untrained is not None:
            self._untrained.check_constant()

    def _close(self) -> None:
        """End the training; a changed buffer does not leave the block."""
        self._open = False
        if self._untrained is not None:
            self._untrained.restore_buffers()


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
    """Reserve `steps`, make a training private, and commit the release when the block ends.

    The other arguments are those of `PrivacyEngine.make_private`. All reserved steps are charged,
    unless the block calls `stop_early`.
    """
    if not poisson_sampling:
        raise OperationRejected(
            "batches that are not Poisson samples have no known bound on their cost (theory 3.6)"
        )
    _check_arguments(gate, module, optimizer, options)
    _check_data_loader(data_loader)
    training = GatedTraining(steps, noise_multiplier)
    rate = 1 / len(data_loader)
    add_remove = replace(gate, relation="add-remove")
    mechanism = _dp_sgd_fields(add_remove, noise_multiplier, rate, steps)
    with add_remove.reserve(name, mechanism) as run:
        _make_private(
            training,
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
            yield training
            training._check_untrained_state()
        finally:
            training._close()
        if training.because and training.steps_taken < steps:
            charged_steps = max(1, training.steps_taken)
            run.report_used(_dp_sgd_fields(add_remove, noise_multiplier, rate, charged_steps))


def _check_arguments(gate: Gate, module: Any, optimizer: Any, options: dict[str, Any]) -> None:
    """Make all checks that are possible before the reservation."""
    if gate.relation not in (None, "add-remove"):
        raise OperationRejected(f"Opacus protects `add-remove`, not `{gate.relation}`")
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise OperationRejected(
            f"option `{unknown[0]}` is not supported: it may change the cost of a step"
        )
    if options.get("grad_sample_mode", "hooks") not in MODES:
        raise OperationRejected(f"`grad_sample_mode` must be one of {', '.join(sorted(MODES))}")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise OperationRejected("distributed training is not supported")
    ModuleValidator.validate(module, strict=True)
    module_parameters = {id(parameter) for parameter in module.parameters()}
    for group in optimizer.param_groups:
        if any(id(parameter) not in module_parameters for parameter in group["params"]):
            raise OperationRejected("the optimizer has parameters that are not in the module")


def _check_data_loader(data_loader: Any) -> None:
    """Refuse a generator of the caller: with its seed, the samples can be repeated."""
    samplers = (data_loader, data_loader.sampler, data_loader.batch_sampler)
    if any(getattr(part, "generator", None) is not None for part in samplers):
        raise OperationRejected(
            "the data loader has a `generator`, whose samples can be repeated; help: omit it"
        )


def _dp_sgd_fields(gate: Gate, noise: float, rate: float, steps: int) -> dict[str, Any]:
    return gate.mechanism_fields(
        {
            "kind": "dp-sgd",
            "noise-multiplier": round_down(noise),
            "sampling-rate": min(round_up(rate), 1),
            "steps": steps,
        }
    )


def _make_private(
    training: GatedTraining, engine: PrivacyEngine, rate: float, **arguments: Any
) -> None:
    """Make the training private with Opacus and check the plan before every step."""
    generator = engine.secure_rng if engine.secure_mode else _seed_freshly(arguments["module"])
    if not engine.secure_mode:
        arguments["noise_generator"] = generator
    module, optimizer, loader = engine.make_private(poisson_sampling=True, **arguments)
    if type(optimizer) is not DPOptimizer or not isinstance(loader, DPDataLoader):
        raise InvariantBroken("Opacus returned an unexpected type of optimizer or data loader")
    if loader.sample_rate > rate:
        raise InvariantBroken("Opacus uses a larger sampling rate than was reserved")
    if type(loader.batch_sampler) is not UniformWithReplacementSampler:
        raise InvariantBroken("Opacus returned an unexpected type of sampler")
    loader.batch_sampler.__class__ = CountingSampler
    if not engine.secure_mode:
        loader.batch_sampler.generator = _seed_freshly()
    optimizer.__class__ = _GatedOptimizer
    optimizer.training = training
    training.module, training.optimizer = module, optimizer
    training.data_loader = _GatedDataLoader(training, loader)
    training._generator = generator
    training._untrained = UntrainedState(arguments["module"], optimizer.params)


def _seed_freshly(module: Any = None) -> torch.Generator:
    """Return a generator with a seed of the operating system, on the device of a module."""
    parameter = None if module is None else next(module.parameters(), None)
    generator = torch.Generator("cpu" if parameter is None else parameter.device)
    generator.seed()
    return generator


class _GatedDataLoader:
    """Data loader that notifies the training of every batch."""

    def __init__(self, training: GatedTraining, loader: Any) -> None:
        self._training = training
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self._training._batches.iterate(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


class _GatedOptimizer(DPOptimizer):  # type: ignore[misc]
    """Optimizer that refuses steps outside the plan."""

    training: GatedTraining
    step_hook: Callable[[Any], None] | None

    def pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        """Count the step; then clip, add noise and notify the accountant.

        A gradient that is not finite counts as zero: its clipped value would be NaN, in every
        parameter and with certainty.
        """
        self.training._begin_step(self)
        with torch.no_grad():
            for parameter in self.params:
                _zero_infinite(parameter.grad_sample)
        return super().pre_step(closure)

    def attach_step_hook(self, fn: Callable[[Any], None]) -> None:
        """Add a hook after the existing ones; Opacus would replace the hook of its accountant."""
        previous = self.step_hook

        def call_both(optimizer: Any) -> None:
            if previous is not None:
                previous(optimizer)
            fn(optimizer)

        self.step_hook = call_both

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """Refuse to skip steps: a later step could then combine several samples unnoticed."""
        if do_skip:
            raise OperationRejected(
                "virtual steps are not supported: a step could combine several samples"
            )


def _zero_infinite(gradients: Any) -> None:
    """Set gradients that are not finite to zero, in place."""
    for tensor in gradients if isinstance(gradients, list) else [gradients]:
        tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
