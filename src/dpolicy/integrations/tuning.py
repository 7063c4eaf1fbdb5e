"""Trials of a hyperparameter search, reserved together as one labelled release.

Choosing parameters by the results of trials releases all trials, so all of them are charged. The
final run with the chosen parameters is another release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.releases.body import Body

#: Default labels of trials.
TUNING = {"stage": "tuning"}


class Trials:
    """Reserved trials; safe to use from several threads."""

    def __init__(self, maximum: int) -> None:
        self.begun = 0
        self._maximum = maximum
        self._closed = False
        self._lock = Lock()

    @contextmanager
    def trial(self) -> Iterator[int]:
        """Run one trial inside the block; yield its number, starting at 1.

        The trial is charged even if the block raises.
        """
        with self._lock:
            if self._closed:
                raise OperationRejected("the search is over; a further trial is another release")
            if self.begun == self._maximum:
                raise OperationRejected(f"all {self._maximum} trials that were reserved were run")
            self.begun += 1
            number = self.begun
        yield number

    def close(self) -> int:
        """Refuse further trials and return the number of trials that began."""
        with self._lock:
            self._closed = True
            return self.begun


@contextmanager
def reserve_trials(
    gate: Gate,
    *mechanisms: Body,
    trials: int,
    name: str = "tuning",
    labels: Mapping[str, str] = TUNING,
) -> Iterator[Trials]:
    """Reserve `trials` runs of the mechanisms, and commit the trials that began.

    Build the mechanisms with `gate.mechanism_fields`. Committing fewer trials is sound only if the
    decision to stop depended on results of trials alone. After an exception, all reserved trials
    are charged. If no trial began, the release is voided.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise OperationRejected(f"`trials` must be an integer of at least 1, got `{trials}`")
    reserved = Trials(trials)
    with gate.reserve(name, *_repeat_labelled(mechanisms, trials, labels)) as run:
        try:
            yield reserved
        finally:
            begun = reserved.close()
        if begun:
            run.report_used(*_repeat_labelled(mechanisms, begun, labels))
        else:
            run.void_unread("no trial was begun")


def _repeat_labelled(
    mechanisms: tuple[Body, ...], count: int, labels: Mapping[str, str]
) -> list[Any]:
    """Return the mechanisms with `count` times as many runs and with the labels added."""
    repeated = []
    for fields in mechanisms:
        mechanism = fields["mechanism"]
        repeated.append(
            {
                **fields,
                "mechanism": {**mechanism, "count": count * mechanism.get("count", 1)},
                "labels": {**fields.get("labels", {}), **labels},
            }
        )
    return repeated
