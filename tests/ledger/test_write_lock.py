"""The write lock of a store: reentry, timeouts and interrupts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpolicy.errors import InvariantBroken, LedgerUnavailable
from dpolicy.ledger.write_lock import StoreLock


class LineInterrupter:
    """Raises `KeyboardInterrupt` once, at the n-th line of `held` before its block begins."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_name != "held":
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def is_free(lock: Any) -> bool:
    """Return whether another thread gets the lock."""
    results: list[bool] = []

    def take() -> None:
        try:
            with lock.held():
                results.append(True)
        except LedgerUnavailable:
            results.append(False)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return results[0]


def interrupt_lines(lock: Any) -> int:
    """Interrupt `held` at every line before its block; return the number of interrupts."""
    line = 1
    while True:
        sys.settrace(LineInterrupter(line))
        try:
            with lock.held():
                sys.settrace(None)
            return line - 1
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert is_free(lock), f"the lock is lost after line {line}"
        line += 1


def test_an_interrupt_releases_the_lock() -> None:
    lock = StoreLock("ledger", wait=0.05)
    assert interrupt_lines(lock) >= 5
    with lock.held():
        assert not is_free(lock)
    assert is_free(lock)


class LosingLock(StoreLock):
    """Records the holder between `acquire` and `try`."""

    @contextmanager
    def held(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._wait):
            raise LedgerUnavailable(self._name)
        self._thread.is_holder = True
        try:
            yield
        finally:
            self._lock.release()


def test_a_lock_that_an_interrupt_keeps_is_detected() -> None:
    with pytest.raises(AssertionError, match="the lock is lost"):
        interrupt_lines(LosingLock("ledger", wait=0.05))


def test_reentry_is_an_error_and_keeps_the_lock() -> None:
    lock = StoreLock("ledger", wait=0.05)
    with lock.held():
        with pytest.raises(InvariantBroken), lock.held():
            pass
        assert not is_free(lock)
    assert is_free(lock)


def test_a_timeout_releases_nothing() -> None:
    lock = StoreLock("ledger", wait=0.05)
    with lock.held():
        assert not is_free(lock)
        assert not is_free(lock)
    with lock.held():
        pass
