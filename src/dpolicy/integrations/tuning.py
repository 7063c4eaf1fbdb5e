"""Trials of a search for parameters → one release that is reserved for all of them, and labelled.

Whoever looks at the outcome of trials to choose among them has released them all. The trials are
charged as what they are; the run with the parameters that were chosen is another release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.releases.body import Body

#: What trials are labelled with, unless a policy has other words.
TUNING = {"stage": "tuning"}


class Trials:
    """Hands out trials, in any number of threads, as long as some are left."""

    def __init__(self, most: int) -> None:
        self.begun = 0
        self._most = most
        self._closed = False
        self._lock = Lock()

    @contextmanager
    def trial(self) -> Iterator[int]:
        """Run one trial within the block; its number from 1. However it ends, it is charged."""
        with self._lock:
            if self._closed:
                raise OperationRejected("the trials are over; what is run now is another release")
            if self.begun == self._most:
                raise OperationRejected(f"all {self._most} trials that were reserved have been run")
            self.begun += 1
            number = self.begun
        yield number

    def close(self) -> int:
        """No more of them; how many there were."""
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
    """Reserve so many trials, each of which runs the mechanisms, that `gate.stated` describes.

    What was begun is committed. That is sound if to stop depended on outcomes of trials only; after
    an exception all that was reserved is charged.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise OperationRejected(f"`{trials}` is no number of trials")
    handed = Trials(trials)
    with gate.reserve(name, *_times(mechanisms, trials, labels)) as run:
        try:
            yield handed
        finally:
            begun = handed.close()
        if begun:
            run.report_used(*_times(mechanisms, begun, labels))
        else:
            run.void_unread("no trial was begun")


def _times(mechanisms: tuple[Body, ...], count: int, labels: Mapping[str, str]) -> list[Any]:
    """The mechanisms so many times, under the labels of a search."""
    return [
        {
            **said,
            "mechanism": {**said["mechanism"], "count": count * said["mechanism"].get("count", 1)},
            "labels": {**said.get("labels", {}), **labels},
        }
        for said in mechanisms
    ]
