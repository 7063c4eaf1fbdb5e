"""Power cuts after every write of many commits, with any part of the data not yet synced."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.faults.faulty_disks import Call, PowerCut, RecordingDisk
from tests.ledger.records import chain_records, last_head, seeded_random, verify_chain

from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.stores import sqlite_setup
from dpolicy.ledger.stores.sqlite import SqliteStore

#: Number of distinct states in each share; the shares run in parallel.
SHARES, STATES = 4, 5_200


@dataclass(frozen=True)
class Recording:
    """The calls of a store on its files, the files before them, and the end of each commit."""

    before: dict[str, bytes]
    calls: tuple[Call, ...]
    ends: tuple[int, ...]  # the last record of each commit


def record_calls(folder: Path, generator: random.Random, commits: int) -> Recording:
    """Record commits of many sizes, checkpoints, snapshots and restarts."""
    path = folder / f"{uuid4().hex}.db"
    SqliteStore(path).close()
    disk = RecordingDisk(path.stem, path)
    before = {"": path.read_bytes()}
    head, ends = Head(), []
    store = open_with_checkpoints(path, disk)
    for number in range(commits):
        payloads = [
            generator.randbytes(generator.choice([10, 200, 3000])) for _ in range(1 + number % 3)
        ]
        with store.open_for_writing() as log:
            records = chain_records(head, payloads)
            log.append(records)
        head = last_head(records)
        ends.append(head.sequence)
        disk.calls.append(Call("confirm", at=head.sequence))
        if number % 7 == 5:
            store.save_snapshot(head.sequence, generator.randbytes(2000))
        if number % 10 == 9:
            store.close()
            store = open_with_checkpoints(path, disk)
    store.close()
    disk.unregister()
    return Recording(before, tuple(disk.calls), tuple(ends))


def open_with_checkpoints(path: Path, disk: RecordingDisk) -> SqliteStore:
    """Return a store that checkpoints its log every few commits."""
    store = SqliteStore(path, vfs=path.stem)
    assert store._writer
    store._writer.wal_autocheckpoint(12)
    return store


@dataclass
class CutCounts:
    """Counts of tested states, of states with lost commits, and of unusable states."""

    states: int = 0
    lost: int = 0
    broken: int = 0


def count_cuts(
    recording: Recording, folder: Path, generator: random.Random, number: int
) -> CutCounts:
    """Open the files of every power cut with the real store."""
    counts, states = CutCounts(), set[bytes]()
    cut = PowerCut(recording.before)
    confirmed = 0
    for call in recording.calls:
        cut.play(call)
        confirmed = call.at if call.kind == "confirm" else confirmed
        for image in cut.images(generator, number):
            fingerprint = hashlib.sha256(b"%d" % confirmed)
            for name, content in sorted(image.items()):
                fingerprint.update(b"%s%d" % (name.encode(), len(content)) + content)
            if fingerprint.digest() not in states:
                states.add(fingerprint.digest())
                check_image(counts, image, folder, recording.ends, confirmed)
    counts.states = len(states)
    return counts


def check_image(
    counts: CutCounts, image: dict[str, bytes], folder: Path, ends: tuple[int, ...], confirmed: int
) -> None:
    """Count an image that lacks a confirmed record, or has a partial commit or a broken store."""
    path = folder / "ledger.db"
    for old in folder.glob("ledger.db*"):
        old.unlink()
    for name, content in image.items():
        (folder / f"ledger.db{name}").write_bytes(content)
    try:
        store = SqliteStore(path)
        try:
            records = verify_chain(store.records_after(0))
            if len(records) % 5 == 0:
                with store.open_for_writing() as log:
                    log.append(chain_records(last_head(records), [b"after the power cut"]))
                assert len(verify_chain(store.records_after(0))) == len(records) + 1
        finally:
            store.close()
    except DPolicyError:
        counts.broken += 1
        return
    counts.lost += len(records) < confirmed
    following = [end for end in (0, *ends) if end >= confirmed][:2]
    counts.broken += len(records) >= confirmed and len(records) not in following


@pytest.mark.parametrize("share", range(SHARES))
def test_a_power_cut_loses_nothing(memory_folder: Path, share: int) -> None:
    generator = seeded_random(f"power-cuts-{share}")
    total = CutCounts()
    while total.states < STATES:
        recording = record_calls(memory_folder, generator, commits=22)
        part = count_cuts(recording, memory_folder, generator, number=16)
        total.states += part.states
        total.lost += part.lost
        total.broken += part.broken
    print(total)
    assert (total.lost, total.broken) == (0, 0)


@pytest.mark.parametrize("unsafe", ["OFF", "NORMAL"])
def test_the_canaries_lose(
    memory_folder: Path, unsafe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = seeded_random(f"power-cuts-{unsafe}")
    level = {"OFF": 0, "NORMAL": 1}[unsafe]
    settings = [
        (f"synchronous={unsafe}", level) if setting == "synchronous=FULL" else (setting, answer)
        for setting, answer in sqlite_setup.SETTINGS
    ]
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_setup, "SETTINGS", settings)
        recording = record_calls(memory_folder, generator, commits=20)
    counts = count_cuts(recording, memory_folder, generator, number=4)
    print(unsafe, counts)
    assert counts.lost
