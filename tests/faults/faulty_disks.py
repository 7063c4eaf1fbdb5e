"""SQLite file systems (VFS) that record calls, fail at a chosen call, or simulate a power cut.

    disk = RecordingDisk("name", path)   # a VFS; open a store with vfs="name"
    disk.calls                           # writes, syncs, truncations and deletions, in order
    cut = PowerCut(before)               # play calls; `cut.images` are the possible files

The model of a power cut: synced data stays. Of the data written since the last sync, any subset of
sectors of 512 bytes may be on the disk. A deleted file may still exist unless its folder was
synced. SQLite syncs the folder of a new log file (`unixSync`); the model relies on that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512

#: Suffixes of the ledger file and its log. SQLite rebuilds the third file, shared memory.
NAMES = ("", "-wal")


@dataclass(frozen=True, slots=True)
class Call:
    """One change of a file, or a mark that records up to `at` were confirmed."""

    kind: str  # write, truncate, sync, delete or confirm
    name: str = ""
    at: int = 0  # offset, new size, or number of a record
    data: bytes = b""


class RecordingDisk(apsw.VFS):
    """A VFS that delegates all calls and records those that change a file."""

    def __init__(self, vfs: str, path: Path) -> None:
        self.calls: list[Call] = []
        self._path = path
        super().__init__(vfs, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.record("delete", self.suffix(filename), at=int(syncdir))

    def suffix(self, name: object) -> str:
        """Return the part of a file name after the path of the ledger."""
        return str(name).removeprefix(str(self._path))

    def record(self, kind: str, name: str, at: int = 0, data: bytes = b"") -> None:
        """Record a call on the ledger file or its log."""
        if name in NAMES:
            self.calls.append(Call(kind, name, at, data))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, disk: RecordingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = disk.suffix(name.filename() if isinstance(name, apsw.URIFilename) else name)
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._disk.record("write", self._name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.record("truncate", self._name, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.record("sync", self._name)


class FailingDisk(apsw.VFS):
    """A VFS that fails at the n-th call that changes a file.

    `remaining` is n, or None for a disk that works. If `lasting`, all later calls fail too.
    """

    def __init__(self, vfs: str) -> None:
        self.vfs = vfs
        self.remaining: int | None = None
        self.error: type[apsw.Error] = apsw.FullError
        self.lasting = True
        self.calls = 0
        super().__init__(vfs, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FailingFile(self, name, flags)

    def count(self) -> None:
        """Count a call; raise if it is the one that fails."""
        self.calls += 1
        if self.remaining is None:
            return
        self.remaining -= 1
        if self.remaining == 0 or (self.remaining < 0 and self.lasting):
            raise self.error("on purpose")


class _FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.count()
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.count()
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.count()
        super().xSync(flags)


class PowerCut:
    """Replays calls one by one and builds the files that a power cut could leave at each point."""

    def __init__(self, before: dict[str, bytes]) -> None:
        self._synced: dict[str, bytes | None] = {name: before.get(name) for name in NAMES}
        self._pending: dict[str, list[Call]] = {name: [] for name in NAMES}

    def play(self, call: Call) -> None:
        """Apply the next call."""
        name = call.name
        if call.kind == "sync":
            self._synced[name] = _apply_calls(self._synced[name], self._pending[name])
            self._pending[name] = []
        elif call.kind in {"write", "truncate", "delete"}:
            self._pending[name].append(call)

    def images(self, generator: random.Random, number: int) -> Iterator[dict[str, bytes]]:
        """Yield the files with none, all, and random parts of the data that was not synced."""
        yield self._image(lambda calls: [])
        yield self._image(lambda calls: calls)
        if any(self._pending.values()):
            for index in range(number):
                torn = index % 2 == 1
                yield self._image(lambda calls, torn=torn: _random_part(calls, generator, torn))

    def _image(self, choose: Any) -> dict[str, bytes]:
        files = {
            name: _apply_calls(self._synced[name], choose(self._pending[name])) for name in NAMES
        }
        return {name: content for name, content in files.items() if content is not None}


def _apply_calls(content: bytes | None, calls: Sequence[Call]) -> bytes | None:
    """Return the content of a file after calls; bytes in a gap are zero."""
    if not calls:
        return content
    file: bytearray | None = None if content is None else bytearray(content)
    for call in calls:
        if call.kind == "delete":
            file = None
            continue
        file = bytearray() if file is None else file
        size = call.at if call.kind == "truncate" else max(len(file), call.at + len(call.data))
        file.extend(bytes(max(0, size - len(file))))
        if call.kind == "truncate":
            del file[size:]
        else:
            file[call.at : call.at + len(call.data)] = call.data
    return None if file is None else bytes(file)


def _random_part(calls: Sequence[Call], generator: random.Random, torn: bool) -> list[Call]:
    probability = generator.random()
    kept: list[Call] = []
    for call in calls:
        pieces = _sectors(call) if torn and call.kind == "write" else [call]
        kept.extend(piece for piece in pieces if generator.random() < probability)
    return kept


def _sectors(call: Call) -> Iterator[Call]:
    start = call.at
    while start < call.at + len(call.data):
        end = min(start - start % SECTOR + SECTOR, call.at + len(call.data))
        yield Call("write", call.name, start, call.data[start - call.at : end - call.at])
        start = end
