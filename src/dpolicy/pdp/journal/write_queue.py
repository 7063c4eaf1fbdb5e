"""Write queue: requests that wait for a commit, of which one at a time leads.

The leader writes for the requests that wait. Each waiting request sleeps on its own lock and
is woken once: with its answer, or as the next leader. So a commit is not followed by requests that
compete for a shared lock only to learn that they are done.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from dpolicy.errors import LedgerUnavailable

#: Message for a request whose commit failed because of another request.
UNFINISHED = (
    "another request of the same commit failed or was interrupted; "
    "help: repeat the request with the same id"
)


class Ticket:
    """A request that waits to be written, and then its result or error. Mutable.

    `size` is the largest number of records that it writes. `batch` has the requests that it
    writes as the leader. `failure` is None after the commit. `is_done` becomes true when the
    request left the queue or was written for.
    """

    __slots__ = ("_wake", "answer", "batch", "error", "failure", "is_done", "size", "work")

    def __init__(self, work: Callable[[Any], Any], size: int = 1) -> None:
        self.work, self.size = work, size
        self.batch: list[Ticket] = []
        self.answer: Any = None
        #: The error of the request itself.
        self.error: Exception | None = None
        #: Why the commit of the request is not known to be durable.
        self.failure: BaseException | None = LedgerUnavailable(UNFINISHED)
        self.is_done = False
        self._wake = Lock()
        self._wake.acquire()

    def result(self) -> Any:
        """Return the answer, or raise the error. Before the commit there is no answer."""
        if self.failure is not None:
            raise self.failure
        if self.error is not None:
            raise self.error
        return self.answer

    def wait(self) -> None:
        """Sleep until `wake` is called."""
        self._wake.acquire()

    def wake(self) -> None:
        """End the sleep of the request. Safe to repeat."""
        if self._wake.locked():
            self._wake.release()


class WriteQueue:
    """Waiting requests in the order of their arrival, and the one that leads.

    A signal handler may raise at any line, and `leave` is then called again. So each line of
    `leave` can be repeated at any later time: it wakes only requests of the leader's own batch, and
    a request that is woken too often sleeps again.
    """

    def __init__(self) -> None:
        self._waiting: list[Ticket] = []
        self._leader: Ticket | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, ticket: Ticket) -> bool:
        """Wait for a turn; return True if the request must lead, False if it is done.

        Call `leave` afterwards, also if this raises.
        """
        with self._lock:
            if self._leader is None:
                self._leader = ticket
            self._waiting.append(ticket)
        while not (ticket.is_done or self._leader is ticket):
            ticket.wait()
        return not ticket.is_done

    def take_batch(self, leader: Ticket, limit: int) -> list[Ticket]:
        """Remove and return the requests that the leader writes, in the order of their arrival.

        They write at most `limit` records, or they are a single request.
        """
        with self._lock:
            count, records = 1, self._waiting[0].size
            for ticket in self._waiting[1:]:
                records += ticket.size
                if records > limit:
                    break
                count += 1
            leader.batch = self._waiting[:count]
            self._waiting = self._waiting[count:]
        return leader.batch

    def leave(self, ticket: Ticket) -> None:
        """Remove a request. A leader wakes the requests of its batch, and passes the lead.

        A request that another one is writing stays written.
        """
        if ticket.is_done:
            return
        with self._lock:
            if ticket in self._waiting:
                ticket.batch = []  # the requests of an interrupted `take_batch` wait as well
                self._waiting.remove(ticket)
            for other in ticket.batch:
                if other is not ticket:
                    other.is_done = True
                    other.wake()
            if self._leader is ticket:
                self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.wake()
            ticket.is_done = True
