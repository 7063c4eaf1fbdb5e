"""Power cuts after every write of many commits, with any part of what was not synced."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.disks import Call, PowerCut, RecordingDisk
from tests.ledger.records import follow, head_of, seeded, verified

from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.stores import sqlite_setup
from dpolicy.ledger.stores.sqlite import SqliteStore

#: States of each share, all different; the shares run side by side.
SHARES, STATES = 4, 5_200


@dataclass(frozen=True)
class Tape:
    """What happened to the files, from which bytes on, and where each commit ended."""

    before: dict[str, bytes]
    calls: tuple[Call, ...]
    ends: tuple[int, ...]  # the last record of each commit


def recorded(folder: Path, chance: random.Random, commits: int) -> Tape:
    """The calls of a life: commits of many sizes, checkpoints, snapshots, restarts, a left log."""
    path = folder / f"{uuid4().hex}.db"
    SqliteStore(path).close()
    disk = RecordingDisk(path.stem, path)
    before = {"": path.read_bytes()}
    head, ends = Head(), []
    store = opened(path, disk)
    for number in range(commits):
        payloads = [chance.randbytes(chance.choice([10, 200, 3000])) for _ in range(1 + number % 3)]
        with store.open_for_writing() as log:
            made = follow(head, payloads)
            log.append(made)
        head = head_of(made)
        ends.append(head.sequence)
        disk.calls.append(Call("confirm", at=head.sequence))
        if number % 7 == 5:
            store.save_snapshot(head.sequence, chance.randbytes(2000))
        if number % 10 == 9:
            store.close()
            store = opened(path, disk)
    store.close()
    disk.unregister()
    return Tape(before, tuple(disk.calls), tuple(ends))


def opened(path: Path, disk: RecordingDisk) -> SqliteStore:
    """A store that folds its log into its file every few commits."""
    store = SqliteStore(path, vfs=path.stem)
    assert store._writer
    store._writer.wal_autocheckpoint(12)
    return store


@dataclass
class Verdict:
    """What became of the states."""

    states: int = 0
    lost: int = 0
    broken: int = 0


def cut_everywhere(tape: Tape, folder: Path, chance: random.Random, number: int) -> Verdict:
    """Open the files of every possible power cut with the real store."""
    verdict, seen = Verdict(), set[bytes]()
    cut = PowerCut(tape.before)
    confirmed = 0
    for call in tape.calls:
        cut.play(call)
        confirmed = call.at if call.what == "confirm" else confirmed
        for image in cut.images(chance, number):
            mark = hashlib.sha256(b"%d" % confirmed)
            for name, content in sorted(image.items()):
                mark.update(b"%s%d" % (name.encode(), len(content)) + content)
            if mark.digest() not in seen:
                seen.add(mark.digest())
                judge(verdict, image, folder, tape.ends, confirmed)
    verdict.states = len(seen)
    return verdict


def judge(
    verdict: Verdict, image: dict[str, bytes], folder: Path, ends: tuple[int, ...], confirmed: int
) -> None:
    """Everything confirmed must be there, whole commits only, and the store must work."""
    path = folder / "ledger.db"
    for left in folder.glob("ledger.db*"):
        left.unlink()
    for name, content in image.items():
        (folder / f"ledger.db{name}").write_bytes(content)
    try:
        store = SqliteStore(path)
        try:
            records = verified(store.records_after(0))
            if len(records) % 5 == 0:
                with store.open_for_writing() as log:
                    log.append(follow(head_of(records), [b"life goes on"]))
                assert len(verified(store.records_after(0))) == len(records) + 1
        finally:
            store.close()
    except DPolicyError:
        verdict.broken += 1
        return
    verdict.lost += len(records) < confirmed
    following = [end for end in (0, *ends) if end >= confirmed][:2]
    verdict.broken += len(records) >= confirmed and len(records) not in following


@pytest.mark.parametrize("share", range(SHARES))
def test_a_power_cut_loses_nothing(memory_folder: Path, share: int) -> None:
    chance = seeded(f"power-cuts-{share}")
    total = Verdict()
    while total.states < STATES:
        tape = recorded(memory_folder, chance, commits=22)
        found = cut_everywhere(tape, memory_folder, chance, number=16)
        total.states += found.states
        total.lost += found.lost
        total.broken += found.broken
    print(total)
    assert (total.lost, total.broken) == (0, 0)


@pytest.mark.parametrize("unsafe", ["OFF", "NORMAL"])
def test_the_canaries_lose(
    memory_folder: Path, unsafe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = seeded(f"power-cuts-{unsafe}")
    level = {"OFF": 0, "NORMAL": 1}[unsafe]
    settings = [
        (f"synchronous={unsafe}", level) if setting == "synchronous=FULL" else (setting, answer)
        for setting, answer in sqlite_setup.SETTINGS
    ]
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_setup, "SETTINGS", settings)
        tape = recorded(memory_folder, chance, commits=20)
    found = cut_everywhere(tape, memory_folder, chance, number=4)
    print(unsafe, found)
    assert found.lost
