"""Gate for dp_accounting: reserves the cost of an event before the accountant composes it.

The wrapped accountant reports the loss of one pipeline; the ledger holds the charges. `running`
reserves the cost while a mechanism runs. `compose` charges immediately, so call it before the
mechanism runs.
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

#: Relation in dpolicy for each relation of dp_accounting, and whether a record becomes zero.
_RELATIONS = {
    "ADD_OR_REMOVE_ONE": (NeighbouringRelation.ADD_REMOVE, False),
    "REPLACE_ONE": (NeighbouringRelation.REPLACE, False),
    "REPLACE_SPECIAL": (NeighbouringRelation.ADD_REMOVE, True),
}


class GatedPrivacyAccountant(dpa.PrivacyAccountant):  # type: ignore[misc]
    """Accountant that composes an event only if the policy allows it; otherwise raises `Denied`."""

    def __init__(self, gate: Gate, accountant: dpa.PrivacyAccountant, name: str = "event") -> None:
        super().__init__(accountant.neighboring_relation)
        self._accountant = accountant
        self._name = name
        relation, self._zeroed = _RELATIONS[accountant.neighboring_relation.name]
        if gate.relation not in (None, str(relation)):
            raise OperationRejected(
                f"the relation of the accountant is `{relation}`, not `{gate.relation}`"
            )
        self._relation = relation
        self._gate = replace(gate, relation=str(relation))

    @contextmanager
    def running(self, event: dpa.DpEvent, count: int = 1) -> Iterator[None]:
        """Reserve the cost of an event while its mechanism runs inside the block."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise OperationRejected(f"`count` must be an integer of at least 1, got `{count}`")
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
        """Charge an event. Call this before its mechanism runs."""
        with self.running(event, count):
            return self

    def supports(self, event: dpa.DpEvent) -> bool:
        """Return whether the accountant supports an event. The policy plays no role in this."""
        return bool(self._accountant.supports(event))

    @property
    def ledger(self) -> dpa.DpEvent:
        """Event that composes all events of this accountant."""
        return self._accountant.ledger

    def get_epsilon(self, target_delta: float) -> float:
        """Return ε of this pipeline alone."""
        return float(self._accountant.get_epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """Return δ of this pipeline alone."""
        return float(self._accountant.get_delta(target_epsilon))

    def _maybe_compose(self, event: dpa.DpEvent, count: int, do_compose: bool) -> Any:
        raise OperationRejected(
            "use `compose` or `running`: they reserve the cost of the event first"
        )
