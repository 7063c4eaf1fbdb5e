"""Many threads → one at a time, in the process that opened the store and in no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from dpolicy.errors import InvariantBroken, LedgerUnavailable

#: Seconds to wait for other writers. A commit takes milliseconds: more waiting means a hung writer.
LOCK_TIMEOUT = 30.0


class WriteLock:
    """A lock that says what is wrong instead of waiting for ever or for itself."""

    def __init__(self, name: str, wait: float = LOCK_TIMEOUT) -> None:
        self._name = name
        self._wait = wait
        self._lock = Lock()
        self._holder: int | None = None
        self._process = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for one's turn and keep it until the block ends."""
        if os.getpid() != self._process:
            raise LedgerUnavailable(
                f"the ledger `{self._name}` was opened before this process was forked\n"
                "help: open it in each process"
            )
        if self._holder == get_ident():
            raise InvariantBroken(f"the ledger `{self._name}` is used inside of its own writing")
        if not self._lock.acquire(timeout=self._wait):
            raise lock_timeout_error(self._name)
        self._holder = get_ident()
        try:
            yield
        finally:
            self._holder = None
            self._lock.release()


def lock_timeout_error(name: str) -> LedgerUnavailable:
    """The error for a writer that waited too long for another."""
    return LedgerUnavailable(
        f"another writer keeps the ledger `{name}` locked; nothing was written\n"
        "help: ask again with the same id; if this repeats, look for a hung process"
    )
