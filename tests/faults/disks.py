"""SQLite's calls to the file system → a list of them, or a failure at any one of them.

    disk = RecordingDisk("name")     # a VFS; open a store with vfs="name"
    disk.calls                       # what was written, synced, cut and deleted, in order
    disk.images(upto, chance)        # files as a power cut could have left them

The model of a power cut: what was synced stays; of what was written since, any part may be there,
in sectors of 512 bytes, in any order; a deleted file may still be there, unless its folder was
synced. SQLite syncs the folder of a new log itself (`unixSync`); the model trusts it in that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512

#: The ledger's file and its log; the third, shared memory, is rebuilt at every start.
NAMES = ("", "-wal")


@dataclass(frozen=True, slots=True)
class Call:
    """One change of a file, or the note that records were confirmed."""

    what: str  # write, cut, sync, delete or confirm
    name: str = ""
    at: int = 0
    data: bytes = b""


class RecordingDisk(apsw.VFS):
    """Passes everything on and keeps a list."""

    def __init__(self, vfs: str, path: Path) -> None:
        self.calls: list[Call] = []
        self._path = path
        super().__init__(vfs, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.note("delete", self.short(filename), at=int(syncdir))

    def short(self, name: object) -> str:
        """What follows the ledger's own name."""
        return str(name).removeprefix(str(self._path))

    def note(self, what: str, name: str, at: int = 0, data: bytes = b"") -> None:
        """Remember a call."""
        if name in NAMES:
            self.calls.append(Call(what, name, at, data))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, disk: RecordingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = disk.short(name.filename() if isinstance(name, apsw.URIFilename) else name)
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._disk.note("write", self._name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.note("cut", self._name, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.note("sync", self._name)


class FailingDisk(apsw.VFS):
    """Fails at the n-th call that changes a file, and at all after it until it is mended."""

    def __init__(self, vfs: str) -> None:
        self.vfs = vfs
        self.left: int | None = None
        self.error: type[apsw.Error] = apsw.FullError
        self.lasting = True
        self.calls = 0
        super().__init__(vfs, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FailingFile(self, name, flags)

    def count(self) -> None:
        """One more call; fail if it is the one."""
        self.calls += 1
        if self.left is None:
            return
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.lasting):
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
    """Replays calls one by one; at each point, makes the files that a power cut could leave."""

    def __init__(self, before: dict[str, bytes]) -> None:
        self._synced: dict[str, bytes | None] = {name: before.get(name) for name in NAMES}
        self._pending: dict[str, list[Call]] = {name: [] for name in NAMES}

    def play(self, call: Call) -> None:
        """The next call happened."""
        name = call.name
        if call.what == "sync":
            self._synced[name] = _after(self._synced[name], self._pending[name])
            self._pending[name] = []
        elif call.what in {"write", "cut", "delete"}:
            self._pending[name].append(call)

    def images(self, chance: random.Random, number: int) -> Iterator[dict[str, bytes]]:
        """The files with none, all, and random parts of what was not synced."""
        yield self._image(lambda calls: [])
        yield self._image(lambda calls: calls)
        if any(self._pending.values()):
            for turn in range(number):
                torn = turn % 2 == 1
                yield self._image(lambda calls, torn=torn: _part(calls, chance, torn))

    def _image(self, choose: Any) -> dict[str, bytes]:
        files = {name: _after(self._synced[name], choose(self._pending[name])) for name in NAMES}
        return {name: content for name, content in files.items() if content is not None}


def _after(content: bytes | None, calls: Sequence[Call]) -> bytes | None:
    """A file after calls; bytes in a gap are zero."""
    if not calls:
        return content
    file: bytearray | None = None if content is None else bytearray(content)
    for call in calls:
        if call.what == "delete":
            file = None
            continue
        file = bytearray() if file is None else file
        size = call.at if call.what == "cut" else max(len(file), call.at + len(call.data))
        file.extend(bytes(max(0, size - len(file))))
        if call.what == "cut":
            del file[size:]
        else:
            file[call.at : call.at + len(call.data)] = call.data
    return None if file is None else bytes(file)


def _part(calls: Sequence[Call], chance: random.Random, torn: bool) -> list[Call]:
    likely = chance.random()
    kept: list[Call] = []
    for call in calls:
        pieces = _sectors(call) if torn and call.what == "write" else [call]
        kept.extend(piece for piece in pieces if chance.random() < likely)
    return kept


def _sectors(call: Call) -> Iterator[Call]:
    start = call.at
    while start < call.at + len(call.data):
        end = min(start - start % SECTOR + SECTOR, call.at + len(call.data))
        yield Call("write", call.name, start, call.data[start - call.at : end - call.at])
        start = end
