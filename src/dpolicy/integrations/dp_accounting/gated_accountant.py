"""An accountant of dp_accounting → one that asks the policy before it composes an event.

The accountant keeps what it can say of one pipeline; the ledger keeps what counts. `running` holds
the cost while a mechanism runs. `compose` charges at once, so it belongs before the mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dp_accounting as dpa

from dpolicy.errors import OperationRejected
from dpolicy.integrations.dp_accounting.event_conversion import (
    mechanisms_from_event,
    repeat_mechanisms,
)
from dpolicy.integrations.gate import Gate
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: What each relation of dp_accounting is here, and whether it is about records that become zero.
_RELATIONS = {
    "ADD_OR_REMOVE_ONE": (NeighbouringRelation.ADD_REMOVE, False),
    "REPLACE_ONE": (NeighbouringRelation.REPLACE, False),
    "REPLACE_SPECIAL": (NeighbouringRelation.ADD_REMOVE, True),
}


class GatedPrivacyAccountant(dpa.PrivacyAccountant):  # type: ignore[misc]
    """Composes events that the policy allows, and raises `Denied` at the others."""

    def __init__(self, gate: Gate, accountant: dpa.PrivacyAccountant, name: str = "event") -> None:
        super().__init__(accountant.neighboring_relation)
        self._accountant = accountant
        self._name = name
        relation, self._zeroed = _RELATIONS[accountant.neighboring_relation.name]
        if gate.relation not in (None, str(relation)):
            raise OperationRejected(
                f"the accountant's relation is `{relation}`, not `{gate.relation}`"
            )
        self._relation = relation
        self._gate = replace(gate, relation=str(relation))

    @contextmanager
    def running(self, event: dpa.DpEvent, count: int = 1) -> Iterator[None]:
        """Hold the cost of an event while its mechanism runs within the block."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise OperationRejected(
                f"`{count}` is no count; it must be a whole number of at least 1"
            )
        mechanisms = repeat_mechanisms(
            mechanisms_from_event(event, self._relation, zeroed=self._zeroed), count
        )
        if not self._accountant.supports(event):
            raise dpa.UnsupportedEventError(f"{type(self._accountant).__name__}: {event}")
        if not mechanisms:
            self._accountant.compose(event, count)
            yield
            return
        with self._gate.reserve(self._name, *map(self._gate.mechanism_fields, mechanisms)):
            self._accountant.compose(event, count)
            yield

    def compose(self, event: dpa.DpEvent, count: int = 1) -> GatedPrivacyAccountant:
        """Charge an event whose mechanism runs after this."""
        with self.running(event, count):
            return self

    def supports(self, event: dpa.DpEvent) -> bool:
        """Whether the accountant supports an event; the policy is not asked."""
        return bool(self._accountant.supports(event))

    @property
    def ledger(self) -> dpa.DpEvent:
        """All that was composed here."""
        return self._accountant.ledger

    def get_epsilon(self, target_delta: float) -> float:
        """What the accountant says of this pipeline alone."""
        return float(self._accountant.get_epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """What the accountant says of this pipeline alone."""
        return float(self._accountant.get_delta(target_epsilon))

    def _maybe_compose(self, event: dpa.DpEvent, count: int, do_compose: bool) -> Any:
        raise OperationRejected(
            "an event is composed by `compose` or `running`, which ask the policy"
        )
