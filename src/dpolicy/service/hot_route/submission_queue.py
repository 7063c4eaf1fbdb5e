"""Submission queue: one thread decides the submissions that wait on the event loop.

The event loop hands over submissions, the thread decides all that wait in one commit, and then
wakes the event loop once for all of them. An answer exists only after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import sleep

from dpolicy.errors import DPolicyError, LedgerUnavailable
from dpolicy.pdp.commands import Answer
from dpolicy.pdp.journal.journal import MAX_BATCH
from dpolicy.pdp.many_releases.batch_commands import Submission

#: Seconds after which the thread wakes the event loop again, if memory was short.
RETRY_SECONDS = 0.05

Outcome = Answer | DPolicyError
Waiting = tuple[Submission, "asyncio.Future[Outcome]"]


class SubmissionQueue:
    """Submissions that wait for a decision, and the thread that decides them.

    `decide` returns an outcome for each submission, or raises an error that concerns all of them.
    One event loop uses a queue; `close` may be called from any thread.
    """

    def __init__(self, decide: Callable[[Sequence[Submission]], Sequence[Outcome]]) -> None:
        self._decide = decide
        #: Submissions of the current turn of the event loop. Only the event loop uses the list.
        self._collected: list[Waiting] = []
        self._handed_over: SimpleQueue[list[Waiting] | None] = SimpleQueue()
        #: Submissions that the thread took over. Only the thread uses the list.
        self._waiting: list[Waiting] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def submit(self, submission: Submission) -> asyncio.Future[Outcome]:
        """Return the future outcome of a submission. Call it on the event loop.

        Raise `LedgerUnavailable` if no thread can start.
        """
        if self._thread is None or not self._thread.is_alive():
            self._start()
        assert self._loop is not None
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if not self._collected:
            self._loop.call_soon(self._hand_over)
        self._collected.append((submission, future))
        return future

    def close(self) -> None:
        """Decide what waits, and end the thread."""
        if self._thread is not None:
            self._handed_over.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        """Start a thread; after an earlier one ended by an error, it decides what still waits."""
        self._loop = asyncio.get_running_loop()
        thread = Thread(target=self._run, name="dpolicy-submissions", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise LedgerUnavailable(
                "no thread can start, so nothing was written; help: retry with the same id"
            ) from error
        self._thread = thread

    def _hand_over(self) -> None:
        """Give the thread what arrived in one turn of the event loop."""
        collected, self._collected = self._collected, []
        self._handed_over.put(collected)

    def _run(self) -> None:
        is_open = True
        while is_open or self._waiting:
            while is_open and (not self._waiting or not self._handed_over.empty()):
                more = self._handed_over.get()
                if more is None:
                    is_open = False
                else:
                    self._waiting += more
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if batch:
                self._decide_batch(batch)

    def _decide_batch(self, batch: Sequence[Waiting]) -> None:
        """Decide submissions and wake the event loop once."""
        outcomes: Sequence[Outcome] | Exception
        try:
            outcomes = self._decide([submission for submission, _ in batch])
        except Exception as error:
            outcomes = error
        except BaseException as error:  # without this thread, all later submissions would wait
            outcomes = RuntimeError("the decision of submissions was interrupted")
            outcomes.__cause__ = error
        assert self._loop is not None
        while True:
            try:
                self._loop.call_soon_threadsafe(_resolve, batch, outcomes)
            except RuntimeError:  # the event loop was closed, so nothing waits
                return
            except MemoryError:  # the submissions wait for their answers: try again
                sleep(RETRY_SECONDS)
            else:
                return


def _resolve(batch: Sequence[Waiting], outcomes: Sequence[Outcome] | Exception) -> None:
    """Set the results of the futures. A request that was cancelled has no use for its result."""
    for number, (_, future) in enumerate(batch):
        if future.done():
            continue
        if isinstance(outcomes, Exception):
            future.set_exception(outcomes)
        else:
            future.set_result(outcomes[number])
