"""State of a module that a private optimizer does not train: buffers and frozen parameters.

Noise protects only what the optimizer changes. A buffer that `forward` updates, such as a running
mean, would contain records without noise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from dpolicy.errors import OperationRejected


class UntrainedState:
    """Values of the buffers, and versions of the frozen parameters, when the training began."""

    def __init__(self, module: Any, trained: Collection[Any]) -> None:
        self._module = module
        self._trained = {id(parameter) for parameter in trained}
        self._buffers = {name: value.clone() for name, value in module.named_buffers()}
        self._frozen = self._frozen_versions()

    def check_constant(self) -> None:
        """Restore the buffers and raise if a part of the state has changed."""
        changed = self._changed_buffers() or self._changed_parameters()
        if changed:
            self.restore_buffers()
            raise OperationRejected(
                f"`{changed[0]}` of the module has changed outside the optimizer, so it contains "
                "records without noise; help: use a module whose `forward` updates no state"
            )

    def restore_buffers(self) -> None:
        """Set all buffers to their values at the beginning, and remove new buffers."""
        for name in self._changed_buffers():
            owner, _, key = name.rpartition(".")
            buffers = self._module.get_submodule(owner)._buffers
            if name in self._buffers:
                buffers[key] = self._buffers[name].clone()
            else:
                del buffers[key]

    def _changed_buffers(self) -> list[str]:
        current = dict(self._module.named_buffers())
        names = [*self._buffers, *(name for name in current if name not in self._buffers)]
        return [
            name for name in names if not _are_equal(self._buffers.get(name), current.get(name))
        ]

    def _changed_parameters(self) -> list[str]:
        current = self._frozen_versions()
        return [name for name in current if current[name] != self._frozen.get(name)]

    def _frozen_versions(self) -> dict[str, tuple[int, int]]:
        """Return the identity and version of each parameter: a copy would double the memory."""
        return {
            name: (id(parameter), parameter._version)
            for name, parameter in self._module.named_parameters()
            if id(parameter) not in self._trained
        }


def _are_equal(first: Any, second: Any) -> bool:
    return first is not None and second is not None and torch.equal(first, second)
