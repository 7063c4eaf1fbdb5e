"""`dpolicy verify` on a ledger that somebody changed: exit code 5, and which record it is.

Three kinds of change. Bytes of the file: found, or nothing that is read has changed. Rows: found.
Rows with every hash made anew: found where a decision comes out otherwise; the rest only shows in
the last hash, which is why that is printed and should be kept elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.ledger.records import chain_records, last_head, seeded_random

from dpolicy.cli.main import exit_code
from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp import audit, ledger_state
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema: {attributes: {zip: {risk: high}, views: {risk: low}}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: BUDGET, delta: 0}}
"""
RELEASE = """\
release: NAME
by: ana
mechanisms:
  - mechanism: {kind: declared, epsilon: EPSILON}
    attributes: [zip]
"""
COSTS = {"past": 0.25, "fine": 0.5, "big": 5, "held": 0.5, "unused": 0.25, "late": 1}

#: Each writes one record, and how it ends.
HISTORY = (
    ("apply two.yaml", 0),
    ("import past.yaml", 0),
    ("submit fine.yaml", 0),
    ("submit big.yaml", 2),
    ("submit --reserve held.yaml", 0),
    ("commit held", 0),
    ("submit --reserve unused.yaml", 0),
    ("void unused --because crashed", 0),
    ("apply three.yaml --because approved", 0),
    ("submit late.yaml", 0),
)
RECORDS = len(HISTORY)

#: How many bytes are flipped, one at a time: of the file, of hashes, of payloads.
FLIPS = 150

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Said:
    """What `verify` says: how it ended, its text, and its JSON."""

    code: int
    text: str
    json: dict[str, Any]

    @property
    def records(self) -> list[int]:
        """The records it names."""
        return [finding["record"] for finding in self.json["findings"]]


Verify = Callable[[Path], Said]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where syncing costs nothing, if there is such a place."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    monkeypatch.chdir(made)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A small ledger with most kinds of events."""
    for name, budget in (("two", 2), ("three", 3)):
        Path(f"{name}.yaml").write_text(POLICY.replace("BUDGET", str(budget)), "utf-8")
    for name, epsilon in COSTS.items():
        text = RELEASE.replace("NAME", name).replace("EPSILON", str(epsilon))
        Path(f"{name}.yaml").write_text(text, "utf-8")
    for line, code in HISTORY:
        assert exit_code([*line.split(), "--ledger", "ledger.db"]) == code, capsys.readouterr()
    capsys.readouterr()
    return folder / "ledger.db"


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    """Runs the command in both formats, which must agree."""

    def run(path: Path) -> Said:
        code = exit_code(["verify", "--ledger", str(path)])
        text = "".join(capsys.readouterr())
        assert exit_code(["verify", "--ledger", str(path), "--format", "json"]) == code
        out = capsys.readouterr().out
        said = Said(code, text, json.loads(out))
        assert "Traceback" not in text
        assert code == (0 if said.json["ok"] else 5)
        for finding in said.json["findings"]:
            assert f"record {finding['record']}: {finding['problem']}" in text
        return said

    return run


def changed(path: Path, statements: str) -> None:
    """Change rows behind the ledger's back."""
    connection = apsw.Connection(str(path))
    triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
    for (name,) in connection.execute(triggers).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statements).fetchall()
    connection.close()


def events_of(path: Path) -> Events:
    """The events as plain values."""
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT payload FROM record ORDER BY sequence").fetchall()
    connection.close()
    return [
        decode_canonical(payload)
        for payload in (row[0] for row in rows)
        if isinstance(payload, bytes)
    ]


def forged(path: Path, events: Events) -> None:
    """Replace all events and make every hash anew, as somebody who knows the format would."""
    changed(path, "DELETE FROM record")
    records = chain_records(Head(), [encode_canonical(event) for event in events])
    head = last_head(records)
    connection = apsw.Connection(str(path))
    rows = [(record.sequence, record.digest, record.payload) for record in records]
    connection.executemany("INSERT INTO record VALUES (?, ?, ?)", rows)
    connection.execute("UPDATE head SET sequence = ?, digest = ?", (head.sequence, head.digest))
    connection.close()


def test_what_was_written_verifies(ledger: Path, verify: Verify) -> None:
    said = verify(ledger)
    assert (said.code, said.json["records"], said.records) == (0, RECORDS, [])
    assert said.text == f"{RECORDS} records verified; the last hash is {said.json['head']}\n"
    kinds = Counter(event["event"] for event in events_of(ledger))
    assert kinds == {
        "policy-applied": 2,
        "release-imported": 1,
        "release-decided": 5,
        "release-committed": 1,
        "release-voided": 1,
    }
    forged(ledger, events_of(ledger))
    assert verify(ledger) == said, "the forger's hashes are the real ones"


# Rows


@pytest.mark.parametrize("record", range(1, RECORDS + 1))
def test_a_changed_payload_is_found(ledger: Path, verify: Verify, record: int) -> None:
    changed(
        ledger,
        "UPDATE record SET payload = CAST(replace(CAST(payload AS TEXT), '20', '30') AS BLOB) "
        f"WHERE sequence = {record}",
    )
    said = verify(ledger)
    assert (said.code, said.records) == (5, [record])


ROWS = {
    "DELETE FROM record WHERE sequence = 1": 1,
    "DELETE FROM record WHERE sequence = 4": 4,
    f"DELETE FROM record WHERE sequence = {RECORDS}": RECORDS,
    "DELETE FROM record WHERE sequence > 6": 7,
    "DELETE FROM record": 1,
    "UPDATE record SET sequence = 0 - sequence WHERE sequence IN (3, 4);"
    "UPDATE record SET sequence = 7 + sequence WHERE sequence IN (0-3, 0-4)": 3,
    "DELETE FROM record WHERE sequence = 4;"
    "UPDATE record SET sequence = sequence - 1 WHERE sequence > 4": 4,
    "UPDATE record SET digest = (SELECT digest FROM head) WHERE sequence = 4": 4,
    "UPDATE record SET digest = zeroblob(32) WHERE sequence = 10": 10,
    "UPDATE record SET payload = zeroblob(0) WHERE sequence = 9": 9,
    "DELETE FROM record WHERE sequence > 6; UPDATE head SET sequence = 6": 6,
    "UPDATE head SET sequence = 12": 11,
    "INSERT INTO record SELECT 11, digest, payload FROM record WHERE sequence = 3": 11,
}


@pytest.mark.parametrize("statements", ROWS)
def test_changed_rows_are_found(ledger: Path, verify: Verify, statements: str) -> None:
    changed(ledger, statements)
    said = verify(ledger)
    assert (said.code, said.records[0]) == (5, ROWS[statements])
    assert f"record {ROWS[statements]}" in said.text


@pytest.mark.parametrize("left", [0, 1, 4, RECORDS - 1])
def test_a_clean_cut_shows_only_to_who_has_seen_more(
    ledger: Path, verify: Verify, left: int
) -> None:
    """Nothing in the file tells it from a younger ledger; the number and the last hash do."""
    before = verify(ledger)
    forged(ledger, events_of(ledger)[:left])
    said = verify(ledger)
    assert (said.code, said.json["records"]) == (0, left)
    assert said.json["head"] != before.json["head"]
    store = open_existing(str(ledger))
    with pytest.raises(LedgerDamaged, match=rf"record {left + 1} is missing.*older copy"):
        list(store.records_after(RECORDS))
    store.close()


# Rows with new hashes


def told(said: dict[str, Any]) -> str:
    """An answer as it is recorded."""
    return json.dumps(said, ensure_ascii=False, sort_keys=True)


def answered(record: int, **said: Any) -> Callable[[Events], None]:
    """An answer with other fields."""

    def edit(events: Events) -> None:
        event = events[record - 1]
        event["answer"] = told({**json.loads(event["answer"]), **said})

    return edit


def cheap_reason(events: Events) -> None:
    """An answer whose reason says that less was spent."""
    said = json.loads(events[2]["answer"])
    said["reasons"][0]["spent"]["epsilon"] = 0
    events[2]["answer"] = told(said)


def decided(record: int, allowed: bool) -> Callable[[Events], None]:
    """A decision that is turned round, in its record and in its answer."""

    def edit(events: Events) -> None:
        answered(record, decision="allow" if allowed else "deny")(events)
        events[record - 1]["allowed"] = allowed

    return edit


def costing(record: int, epsilon: Fraction) -> Callable[[Events], None]:
    """A release that asks for something else than it did."""

    def edit(events: Events) -> None:
        events[record - 1]["body"]["mechanisms"][0]["mechanism"]["epsilon"] = epsilon

    return edit


def updated(record: int, **fields: Any) -> Callable[[Events], None]:
    """An event with other fields."""
    return lambda events: events[record - 1].update(fields)


def swapped(one: int, other: int) -> Callable[[Events], None]:
    """Two events in each other's place."""

    def edit(events: Events) -> None:
        events[one - 1], events[other - 1] = events[other - 1], events[one - 1]

    return edit


def generous(events: Events) -> None:
    """The first policy with a larger budget."""
    (source,) = events[0]["sources"]
    source[1] = source[1].replace("epsilon: 2", "epsilon: 9")


def over_a_conflict(events: Events) -> None:
    """One more policy, which the past has already broken."""
    source = Source("small.yaml", POLICY.replace("BUDGET", "0.5"))
    small = {"sources": [[source.name, source.text]], "digest": compile_policy([source]).digest}
    events.append({**events[0], **small})


def mechanisms(record: int, *said: dict[str, Any]) -> Callable[[Events], None]:
    """A release with other mechanisms."""
    return lambda events: events[record - 1]["body"].update(mechanisms=list(said))


def committed(release: str, epsilon: Fraction | int) -> Callable[[Events], None]:
    """The commit of `held` says that something else was run."""

    def edit(events: Events) -> None:
        mechanism = {"mechanism": {"kind": "declared", "epsilon": epsilon}, "attributes": ["zip"]}
        events[5]["body"] = {"release": release, "mechanisms": [mechanism]}

    return edit


def expired(events: Events) -> None:
    """The reservation that was voided runs out instead, a day too early."""
    kept = {key: events[7][key] for key in ("at", "format", "release")}
    events[7] = {**kept, "event": "release-expired"}


def relabelled(
    *, name: str = "fine", epsilon: int = 0, because: str = "mislabelled", **said: Any
) -> Callable[[Events], None]:
    """One more event, in which `fine` is described anew."""

    def edit(events: Events) -> None:
        (mechanism,) = events[2]["body"]["mechanisms"]
        cost = {"kind": "declared", "epsilon": Fraction(epsilon, 1000)}
        described = {**mechanism, **({"mechanism": cost} if epsilon else {}), **said}
        body = {"release": name, "by": "ana", "mechanisms": [described]}
        kept = {key: events[2][key] for key in ("at", "by", "format", "release")}
        event = {**kept, "event": "release-relabelled", "because": because, "body": body}
        events.append(event)

    return edit


FORGERIES: dict[str, tuple[Callable[[Events], object], int, str]] = {
    "a denial is made an allowance": (decided(4, True), 4, "`big` was allowed, and should not"),
    "an allowance is made a denial": (decided(3, False), 3, "`fine` was denied, and should not"),
    "only the record says allowed": (updated(4, allowed=True), 4, "contradicts its record"),
    "only the answer says allowed": (answered(4, decision="allow"), 4, "contradicts its record"),
    "an answer is of another record": (
        answered(3, sequence=99),
        3,
        "differs from the recomputed decision",
    ),
    "an answer was replayed at first": (answered(3, replayed=True), 3, "contradicts its record"),
    "an answer is no text": (updated(3, answer="allow"), 3, "contradicts its record"),
    "an answer breaks no rule": (
        answered(4, reasons=[]),
        4,
        "differs from the recomputed decision",
    ),
    "an answer gives no reasons": (answered(3, reasons=[]), 3, "has other reasons"),
    "an answer says that less was spent": (cheap_reason, 3, "has other reasons"),
    "an answer offers nothing": (answered(4, **{"would-fit": []}), 4, "has other reasons"),
    "a release costs less than was told": (costing(3, Fraction(1, 100)), 3, "other reasons"),
    "a denial never was": (lambda events: events.pop(3), 4, "differs from the recomputed decision"),
    "a past release never was": (
        lambda events: events.pop(1),
        2,
        "differs from the recomputed decision",
    ),
    "a denied release is made small": (costing(4, Fraction(1, 100)), 4, "`big` was denied"),
    "a past release is made large": (costing(2, Fraction(2)), 3, "`fine` was allowed"),
    "a release is made large": (costing(10, Fraction(3)), 10, "`late` was allowed"),
    "a commit before its reservation": (swapped(5, 6), 5, "refers to unknown release"),
    "a decision before any policy": (swapped(1, 3), 1, "without an active policy"),
    "a reservation is left out": (lambda events: events.pop(4), 5, "refers to unknown release"),
    "a commit is there twice": (lambda e: e.insert(6, e[5]), 7, "no reservation to end"),
    "a void after a commit": (updated(8, release="held"), 8, "no reservation to end"),
    "a release is there twice": (lambda e: e.append(e[2]), 11, "twice"),
    "a release under another name": (updated(3, release="other"), 3, "`other` has the id `fine`"),
    "a policy with another text": (generous, 1, "the digest of the policy is sha256:"),
    "a policy that is none": (updated(1, sources=[["two.yaml", "no: ["]]), 1, "two.yaml:1:"),
    "a policy over a conflict": (over_a_conflict, 11, "with the unaccepted conflict `all`"),
    "a commit of more than was reserved": (committed("held", 1), 6, "costs more"),
    "a commit of another release": (
        committed("fine", Fraction(1, 4)),
        6,
        "`held` has the id `fine`",
    ),
    "a void without a reason": (updated(8, because=" "), 8, "`unused` has no `because`"),
    "a void after its time": (updated(8, at="2999-01-01T00:00:00+00:00"), 8, "after its time"),
    "an expiry before its time": (
        expired,
        8,
        "`unused` was recorded as expired before its expiry time",
    ),
    "a release is relabelled as cheaper": (relabelled(epsilon=1), 11, "other mechanisms"),
    "a release is relabelled as another": (relabelled(name="late"), 11, "`fine` has the id `late`"),
    "a relabelling without a reason": (relabelled(because=""), 11, "has no `because`"),
    "a relabelling with unknown words": (relabelled(attributes=["zap"]), 11, "no attribute `zap`"),
    "a release is only said to be reserved": (updated(3, reserved=True), 3, "has no expiry time"),
    "a release only has an end": (updated(3, expires="2999"), 3, "and not to be"),
    "a policy without a text": (updated(1, sources=[]), 1, "has an invalid `sources`"),
    "a release without mechanisms": (mechanisms(3), 3, "has an invalid `body`"),
    "a mechanism that is none": (mechanisms(2, {"mechanism": 1}), 2, "has an invalid `body`"),
    "a mechanism of no kind": (
        mechanisms(3, {"mechanism": {"kind": "magic"}}),
        3,
        "`fine` cannot be resolved",
    ),
    "a past mechanism of no kind": (
        mechanisms(2, {"mechanism": {"kind": "magic"}}),
        2,
        "unknown kind `magic`",
    ),
    "a reservation with an end that is none": (
        updated(5, expires=[]),
        5,
        "has an invalid `expires`",
    ),
    "an event of another format": (updated(3, format=3), 3, "format 3"),
    "an event of the format of others": (updated(3, format=2), 3, "has format 2, not 1"),
    "an event of no kind": (updated(3, event="release-forgotten"), 3, "unknown event type"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_decisions_are_found(ledger: Path, verify: Verify, name: str) -> None:
    edit, record, problem = FORGERIES[name]
    events = events_of(ledger)
    edit(events)
    forged(ledger, events)
    said = verify(ledger)
    assert (said.code, said.records[0]) == (5, record)
    assert any(problem in found["problem"] for found in said.json["findings"])


#: Histories that could have been: nothing in them contradicts anything else.
POSSIBLE: dict[str, Callable[[Events], object]] = {
    "somebody else asked": updated(3, by="eve"),
    "it was at another time": updated(3, at="2020-01-01T00:00:00+00:00"),
    "it was for another reason": updated(2, because="found in a drawer"),
    "nothing new was learnt": relabelled(),
    "less was run": committed("held", Fraction(1, 2)),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_another_history_shows_only_in_the_last_hash(
    ledger: Path, verify: Verify, name: str
) -> None:
    before = verify(ledger)
    events = events_of(ledger)
    POSSIBLE[name](events)
    forged(ledger, events)
    said = verify(ledger)
    assert said.code == 0
    assert said.json["head"] != before.json["head"]


def test_without_the_chain_a_change_would_pass(
    ledger: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary of changed rows: a verifier that checks no hashes."""
    changed(
        ledger,
        "UPDATE record SET payload = CAST(replace(CAST(payload AS TEXT), 'ana', 'eve') AS BLOB) "
        "WHERE sequence = 3",
    )
    assert verify(ledger).records == [3]
    for module in (audit, ledger_state):
        monkeypatch.setattr(module, "check_chain", lambda *_: None)
    assert verify(ledger).code == 0


def test_without_deciding_again_a_forgery_would_pass(
    ledger: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary of forged decisions: a verifier that believes what is recorded."""
    events = events_of(ledger)
    decided(3, False)(events)
    forged(ledger, events)
    assert verify(ledger).records[0] == 3
    monkeypatch.setattr(audit, "_check_event", lambda *_: iter(()))
    assert verify(ledger).code == 0


# Bytes


def flipped(path: Path, whole: bytes, places: Iterable[int], mask: int) -> None:
    """The file with bytes changed, and no log beside it."""
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    content = bytearray(whole)
    for at in places:
        content[at] ^= mask
    path.write_bytes(content)


def test_a_flipped_byte_is_found_or_harmless(ledger: Path, verify: Verify) -> None:
    """Harmless: in free space or old copies of rows, or in what SQLite does not need."""
    chance = seeded_random("verify-flips")
    before, whole = verify(ledger), ledger.read_bytes()
    harmless = 0
    for at in chance.sample(range(len(whole)), FLIPS):
        mask = chance.randrange(1, 256)
        flipped(ledger, whole, [at], mask)
        said = verify(ledger)
        assert said.code == 5 or said == before, f"byte {at} with {mask}: {said.text}"
        harmless += said.code == 0
    print(f"{FLIPS} of {len(whole)} bytes flipped, {FLIPS - harmless} found, the others harmless")
    assert 0 < harmless < FLIPS


@pytest.mark.parametrize("part", ["digest", "payload"])
def test_a_flipped_byte_of_a_record_is_found(ledger: Path, verify: Verify, part: str) -> None:
    """The file may hold old copies of a row, which nobody reads: the byte is flipped in all."""
    chance = seeded_random(f"verify-flips-{part}")
    whole = ledger.read_bytes()
    store = open_existing(str(ledger))
    parts = {record.sequence: bytes(getattr(record, part)) for record in store.records_after(0)}
    store.close()
    every = [(record, at) for record, content in parts.items() for at in range(len(content))]
    for record, at in chance.sample(every, FLIPS):
        copies = [m.start() + at for m in re.finditer(re.escape(parts[record]), whole)]
        mask = chance.randrange(1, 256)
        flipped(ledger, whole, copies, mask)
        said = verify(ledger)
        where = f"byte {at} of record {record} with {mask}: {said.text}"
        assert (said.code, said.records) == (5, [record]), where


def test_an_unreadable_file_is_told_in_json_too(ledger: Path, verify: Verify) -> None:
    flipped(ledger, ledger.read_bytes(), range(16), 0xFF)
    said = verify(ledger)
    assert (said.code, said.json["records"], said.json["head"], said.records) == (5, 0, "", [1])


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 10000, -4096, -1])
def test_a_cut_file_is_found(ledger: Path, verify: Verify, size: int) -> None:
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: size % len(whole)])
    said = verify(ledger)
    assert said.code == 5
    assert said.text
