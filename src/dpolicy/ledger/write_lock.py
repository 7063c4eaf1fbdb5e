"""Write lock of a store. One thread holds it, and only in the process that opened the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, local

from dpolicy.errors import InvariantBroken, LedgerUnavailable

#: Seconds to wait for other writers. A commit takes milliseconds, so a longer wait means that
#: another writer hangs.
LOCK_TIMEOUT = 30.0


class StoreLock:
    """A lock with a timeout that detects reentry and use after a fork."""

    def __init__(self, name: str, wait: float = LOCK_TIMEOUT) -> None:
        self._name = name
        self._wait = wait
        self._lock = RLock()  # only the thread that has it can release it
        self._thread = local()
        self._process = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock and hold it until the block ends.

        Raise `LedgerUnavailable` after a timeout or in a forked process, and `InvariantBroken` if
        this thread holds the lock already.
        """
        if os.getpid() != self._process:
            raise LedgerUnavailable(
                f"ledger `{self._name}` was opened before this process was forked\n"
                "help: open it in each process"
            )
        if getattr(self._thread, "is_holder", False):
            raise InvariantBroken(f"ledger `{self._name}` is used within its own write block")
        try:  # before `acquire`, as a signal handler may raise directly after it
            if not self._lock.acquire(timeout=self._wait):
                raise lock_timeout_error(self._name)
            self._thread.is_holder = True
            yield
        finally:
            try:
                self._lock.release()
            except RuntimeError:  # this thread did not get the lock
                pass
            finally:
                self._thread.is_holder = False


def lock_timeout_error(name: str) -> LedgerUnavailable:
    """Return the error for a writer that waited too long for the write lock."""
    return LedgerUnavailable(
        f"ledger `{name}` is locked by another writer; nothing was written\n"
        "help: retry with the same id; if this repeats, look for a process that hangs"
    )
