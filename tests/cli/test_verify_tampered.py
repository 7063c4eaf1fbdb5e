"""`dpolicy verify` on a changed ledger returns exit code 5 and names the record.

The tests make three kinds of change. A changed byte of the file is detected, unless it changes
nothing that is read. A changed row is always detected. If an attacker changes rows and recomputes
every hash, the change is detected only if a recomputed decision differs. Any other change alters
only the last hash; therefore `verify` prints the last hash, and it should be stored elsewhere.
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
from dpolicy.pdp.audits import audit
from dpolicy.pdp.state import ledger_state
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

#: Commands that write one record each, with their exit codes.
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

#: Number of bytes that are flipped, one at a time: of the file, of hashes, of payloads.
FLIPS = 150

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class VerifyResult:
    """Exit code, text output and JSON output of `verify`."""

    code: int
    text: str
    json: dict[str, Any]

    @property
    def records(self) -> list[int]:
        """Return the numbers of the records in the findings."""
        return [finding["record"] for finding in self.json["findings"]]


Verify = Callable[[Path], VerifyResult]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a temporary directory, in memory if possible, so that syncing is fast."""
    shared = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    monkeypatch.chdir(directory)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the path of a small ledger with most kinds of events."""
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
    """Return a function that runs `verify` in both formats and checks that they agree."""

    def run(path: Path) -> VerifyResult:
        code = exit_code(["verify", "--ledger", str(path)])
        text = "".join(capsys.readouterr())
        assert exit_code(["verify", "--ledger", str(path), "--format", "json"]) == code
        out = capsys.readouterr().out
        result = VerifyResult(code, text, json.loads(out))
        assert "Traceback" not in text
        assert code == (0 if result.json["ok"] else 5)
        for finding in result.json["findings"]:
            assert f"record {finding['record']}: {finding['problem']}" in text
        return result

    return run


def execute_sql(path: Path, statements: str) -> None:
    """Execute SQL on the ledger file after dropping its triggers."""
    connection = apsw.Connection(str(path))
    triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
    for (name,) in connection.execute(triggers).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statements).fetchall()
    connection.close()


def read_events(path: Path) -> Events:
    """Return the events as plain values."""
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT payload FROM record ORDER BY sequence").fetchall()
    connection.close()
    return [
        decode_canonical(payload)
        for payload in (row[0] for row in rows)
        if isinstance(payload, bytes)
    ]


def rewrite_ledger(path: Path, events: Events) -> None:
    """Replace all events and recompute every hash, like an attacker who knows the format."""
    execute_sql(path, "DELETE FROM record")
    records = chain_records(Head(), [encode_canonical(event) for event in events])
    head = last_head(records)
    connection = apsw.Connection(str(path))
    rows = [(record.sequence, record.digest, record.payload) for record in records]
    connection.executemany("INSERT INTO record VALUES (?, ?, ?)", rows)
    connection.execute("UPDATE head SET sequence = ?, digest = ?", (head.sequence, head.digest))
    connection.close()


def test_an_unchanged_ledger_is_verified(ledger: Path, verify: Verify) -> None:
    result = verify(ledger)
    assert (result.code, result.json["records"], result.records) == (0, RECORDS, [])
    assert result.text == f"{RECORDS} records verified; the last hash is {result.json['head']}\n"
    kinds = Counter(event["event"] for event in read_events(ledger))
    assert kinds == {
        "policy-applied": 2,
        "release-imported": 1,
        "release-decided": 5,
        "release-committed": 1,
        "release-voided": 1,
    }
    rewrite_ledger(ledger, read_events(ledger))
    assert verify(ledger) == result, "rewriting unchanged events gives the same hashes"


# Rows


@pytest.mark.parametrize("record", range(1, RECORDS + 1))
def test_a_changed_payload_is_detected(ledger: Path, verify: Verify, record: int) -> None:
    execute_sql(
        ledger,
        "UPDATE record SET payload = CAST(replace(CAST(payload AS TEXT), '20', '30') AS BLOB) "
        f"WHERE sequence = {record}",
    )
    result = verify(ledger)
    assert (result.code, result.records) == (5, [record])


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
def test_changed_rows_are_detected(ledger: Path, verify: Verify, statements: str) -> None:
    execute_sql(ledger, statements)
    result = verify(ledger)
    assert (result.code, result.records[0]) == (5, ROWS[statements])
    assert f"record {ROWS[statements]}" in result.text


@pytest.mark.parametrize("remaining", [0, 1, 4, RECORDS - 1])
def test_a_truncated_ledger_differs_only_in_length_and_last_hash(
    ledger: Path, verify: Verify, remaining: int
) -> None:
    """The file equals that of an earlier ledger; only the record count and the last hash differ."""
    before = verify(ledger)
    rewrite_ledger(ledger, read_events(ledger)[:remaining])
    result = verify(ledger)
    assert (result.code, result.json["records"]) == (0, remaining)
    assert result.json["head"] != before.json["head"]
    store = open_existing(str(ledger))
    with pytest.raises(LedgerDamaged, match=rf"record {remaining + 1} is missing.*older copy"):
        list(store.records_after(RECORDS))
    store.close()


# Rows with new hashes


def encode_answer(answer: dict[str, Any]) -> str:
    """Encode an answer as the ledger records it."""
    return json.dumps(answer, ensure_ascii=False, sort_keys=True)


def edit_answer(record: int, **fields: Any) -> Callable[[Events], None]:
    """Return an edit that changes fields of a recorded answer."""

    def edit(events: Events) -> None:
        event = events[record - 1]
        event["answer"] = encode_answer({**json.loads(event["answer"]), **fields})

    return edit


def lower_spent_in_reason(events: Events) -> None:
    """Set the spent ε in a reason of the third record to 0."""
    answer = json.loads(events[2]["answer"])
    answer["reasons"][0]["spent"]["epsilon"] = 0
    events[2]["answer"] = encode_answer(answer)


def reverse_decision(record: int, allowed: bool) -> Callable[[Events], None]:
    """Return an edit that reverses a decision in its record and in its answer."""

    def edit(events: Events) -> None:
        edit_answer(record, decision="allow" if allowed else "deny")(events)
        events[record - 1]["allowed"] = allowed

    return edit


def set_epsilon(record: int, epsilon: Fraction) -> Callable[[Events], None]:
    """Return an edit that changes the ε of a release."""

    def edit(events: Events) -> None:
        events[record - 1]["body"]["mechanisms"][0]["mechanism"]["epsilon"] = epsilon

    return edit


def update_event(record: int, **fields: Any) -> Callable[[Events], None]:
    """Return an edit that changes fields of an event."""
    return lambda events: events[record - 1].update(fields)


def swap_events(one: int, other: int) -> Callable[[Events], None]:
    """Return an edit that swaps two events."""

    def edit(events: Events) -> None:
        events[one - 1], events[other - 1] = events[other - 1], events[one - 1]

    return edit


def raise_budget_of_first_policy(events: Events) -> None:
    """Raise the budget in the text of the first policy."""
    (source,) = events[0]["sources"]
    source[1] = source[1].replace("epsilon: 2", "epsilon: 9")


def append_conflicting_policy(events: Events) -> None:
    """Append a policy that the recorded releases already exceed."""
    source = Source("small.yaml", POLICY.replace("BUDGET", "0.5"))
    small = {"sources": [[source.name, source.text]], "digest": compile_policy([source]).digest}
    events.append({**events[0], **small})


def set_mechanisms(record: int, *entries: dict[str, Any]) -> Callable[[Events], None]:
    """Return an edit that replaces the mechanisms of a release."""
    return lambda events: events[record - 1]["body"].update(mechanisms=list(entries))


def set_committed_body(release: str, epsilon: Fraction | int) -> Callable[[Events], None]:
    """Return an edit that changes the used mechanisms in the commit of `held`."""

    def edit(events: Events) -> None:
        mechanism = {"mechanism": {"kind": "declared", "epsilon": epsilon}, "attributes": ["zip"]}
        events[5]["body"] = {"release": release, "mechanisms": [mechanism]}
        events[5] |= {"format": 3, "meaning": events[4]["meaning"]}

    return edit


def replace_void_by_expiry(events: Events) -> None:
    """Replace the void of a reservation by an expiry that is a day too early."""
    kept = {key: events[7][key] for key in ("at", "format", "release")}
    events[7] = {**kept, "event": "release-expired"}


def append_relabelling(
    *, name: str = "fine", epsilon: int = 0, because: str = "mislabelled", **fields: Any
) -> Callable[[Events], None]:
    """Return an edit that appends a relabelling of `fine`."""

    def edit(events: Events) -> None:
        (mechanism,) = events[2]["body"]["mechanisms"]
        cost = {"kind": "declared", "epsilon": Fraction(epsilon, 1000)}
        entry = {**mechanism, **({"mechanism": cost} if epsilon else {}), **fields}
        body = {"release": name, "by": "ana", "mechanisms": [entry]}
        kept = {key: events[2][key] for key in ("at", "by", "format", "release", "meaning")}
        event = {**kept, "event": "release-relabelled", "because": because, "body": body}
        events.append(event)

    return edit


FORGERIES: dict[str, tuple[Callable[[Events], object], int, str]] = {
    "a denial is changed to an allowance": (
        reverse_decision(4, True),
        4,
        "`big` was allowed, and should not",
    ),
    "an allowance is changed to a denial": (
        reverse_decision(3, False),
        3,
        "`fine` was denied, and should not",
    ),
    "only the record is changed to allowed": (
        update_event(4, allowed=True),
        4,
        "contradicts its record",
    ),
    "only the answer is changed to allowed": (
        edit_answer(4, decision="allow"),
        4,
        "contradicts its record",
    ),
    "an answer has the number of another record": (
        edit_answer(3, sequence=99),
        3,
        "differs from the recomputed decision",
    ),
    "an original answer is marked as replayed": (
        edit_answer(3, replayed=True),
        3,
        "contradicts its record",
    ),
    "an answer is not JSON": (update_event(3, answer="allow"), 3, "contradicts its record"),
    "the answer of a denial lists no exceeded rule": (
        edit_answer(4, reasons=[]),
        4,
        "differs from the recomputed decision",
    ),
    "the reasons are removed from an answer": (edit_answer(3, reasons=[]), 3, "has other reasons"),
    "an answer states a smaller balance": (lower_spent_in_reason, 3, "has other reasons"),
    "the recorded release costs less than its answer states": (
        set_epsilon(3, Fraction(1, 100)),
        3,
        "other reasons",
    ),
    "a denial is removed": (
        lambda events: events.pop(3),
        4,
        "differs from the recomputed decision",
    ),
    "an imported release is removed": (
        lambda events: events.pop(1),
        2,
        "differs from the recomputed decision",
    ),
    "the cost of a denied release is lowered": (
        set_epsilon(4, Fraction(1, 100)),
        4,
        "`big` was denied",
    ),
    "the cost of an imported release is raised": (
        set_epsilon(2, Fraction(2)),
        3,
        "`fine` was allowed",
    ),
    "the cost of an allowed release is raised": (
        set_epsilon(10, Fraction(3)),
        10,
        "`late` was allowed",
    ),
    "a commit precedes its reservation": (swap_events(5, 6), 5, "refers to unknown release"),
    "a decision precedes the first policy": (swap_events(1, 3), 1, "without an active policy"),
    "a reservation is removed": (lambda events: events.pop(4), 5, "refers to unknown release"),
    "a commit is duplicated": (lambda e: e.insert(6, e[5]), 7, "no reservation to end"),
    "a void follows a commit": (update_event(8, release="held"), 8, "no reservation to end"),
    "a release is duplicated": (lambda e: e.append(e[2]), 11, "twice"),
    "a release event has another id": (
        update_event(3, release="other"),
        3,
        "`other` has the id `fine`",
    ),
    "the text of a policy is changed": (
        raise_budget_of_first_policy,
        1,
        "the digest of the policy is sha256:",
    ),
    "the text of a policy is invalid": (
        update_event(1, sources=[["two.yaml", "no: ["]]),
        1,
        "two.yaml:1:",
    ),
    "a policy is applied despite a conflict": (
        append_conflicting_policy,
        11,
        "with the unaccepted conflict `all`",
    ),
    "a commit costs more than its reservation": (set_committed_body("held", 1), 6, "costs more"),
    "a commit contains another release": (
        set_committed_body("fine", Fraction(1, 4)),
        6,
        "`held` has the id `fine`",
    ),
    "a void has no reason": (update_event(8, because=" "), 8, "`unused` has no `because`"),
    "a void follows the expiry time": (
        update_event(8, at="2999-01-01T00:00:00+00:00"),
        8,
        "after it expired",
    ),
    "an expiry precedes the expiry time": (
        replace_void_by_expiry,
        8,
        "`unused` was recorded as expired before its expiry time",
    ),
    "a relabelling lowers the cost": (
        append_relabelling(epsilon=1),
        11,
        "must keep the mechanisms",
    ),
    "a relabelling contains another id": (
        append_relabelling(name="late"),
        11,
        "`fine` has the id `late`",
    ),
    "a relabelling has no reason": (append_relabelling(because=""), 11, "has no `because`"),
    "a relabelling has an unknown attribute": (
        append_relabelling(attributes=["zap"]),
        11,
        "no attribute `zap`",
    ),
    "a reservation has no expiry time": (update_event(3, reserved=True), 3, "has no expiry time"),
    "a release without a reservation has an expiry time": (
        update_event(3, expires="2999"),
        3,
        "has contradictory reservation fields",
    ),
    "a policy has no text": (update_event(1, sources=[]), 1, "has an invalid `sources`"),
    "a release has no mechanisms": (set_mechanisms(3), 3, "has an invalid `body`"),
    "a mechanism is not an object": (
        set_mechanisms(2, {"mechanism": 1}),
        2,
        "has an invalid `body`",
    ),
    "a mechanism has an unknown kind": (
        set_mechanisms(3, {"mechanism": {"kind": "magic"}}),
        3,
        "`fine` cannot be resolved",
    ),
    "an imported mechanism has an unknown kind": (
        set_mechanisms(2, {"mechanism": {"kind": "magic"}}),
        2,
        "unknown kind `magic`",
    ),
    "an expiry time is not a string": (
        update_event(5, expires=[]),
        5,
        "has an invalid `expires`",
    ),
    "an event has an unknown format": (update_event(3, format=4), 3, "format 4"),
    "an event has the format of other event types": (
        update_event(3, format=2),
        3,
        "has format 2, not 1",
    ),
    "an event has an unknown type": (
        update_event(3, event="release-forgotten"),
        3,
        "unknown event type",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_decisions_are_detected(ledger: Path, verify: Verify, name: str) -> None:
    edit, record, problem = FORGERIES[name]
    events = read_events(ledger)
    edit(events)
    rewrite_ledger(ledger, events)
    result = verify(ledger)
    assert (result.code, result.records[0]) == (5, record)
    assert any(problem in finding["problem"] for finding in result.json["findings"])


#: Forgeries that `verify` cannot detect, because the changed history is consistent.
POSSIBLE: dict[str, Callable[[Events], object]] = {
    "the release has another author": update_event(3, by="eve"),
    "the release has another time": update_event(3, at="2020-01-01T00:00:00+00:00"),
    "the import has another reason": update_event(2, because="late report"),
    "a relabelling without changes is added": append_relabelling(),
    "the commit states its mechanisms": set_committed_body("held", Fraction(1, 2)),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_consistent_forgery_changes_only_the_last_hash(
    ledger: Path, verify: Verify, name: str
) -> None:
    before = verify(ledger)
    events = read_events(ledger)
    POSSIBLE[name](events)
    rewrite_ledger(ledger, events)
    result = verify(ledger)
    assert result.code == 0
    assert result.json["head"] != before.json["head"]


def test_a_changed_row_passes_without_the_hash_check(
    ledger: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary of the row tests: disable the check of the hash chain."""
    execute_sql(
        ledger,
        "UPDATE record SET payload = CAST(replace(CAST(payload AS TEXT), 'ana', 'eve') AS BLOB) "
        "WHERE sequence = 3",
    )
    assert verify(ledger).records == [3]
    for module in (audit, ledger_state):
        monkeypatch.setattr(module, "check_chain", lambda *_: None)
    assert verify(ledger).code == 0


def test_a_forgery_passes_without_recomputed_decisions(
    ledger: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary of the forgery tests: disable the recomputation of decisions."""
    events = read_events(ledger)
    reverse_decision(3, False)(events)
    rewrite_ledger(ledger, events)
    assert verify(ledger).records[0] == 3
    monkeypatch.setattr(audit, "_check_event", lambda *_: iter(()))
    assert verify(ledger).code == 0


# Bytes


def flip_bytes(path: Path, whole: bytes, offsets: Iterable[int], mask: int) -> None:
    """Write `whole` with changed bytes to `path` and delete the write-ahead log."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    content = bytearray(whole)
    for offset in offsets:
        content[offset] ^= mask
    path.write_bytes(content)


def test_a_flipped_byte_is_detected_or_harmless(ledger: Path, verify: Verify) -> None:
    """Bytes of free space, of old copies of rows, and bytes that SQLite ignores are harmless."""
    chance = seeded_random("verify-flips")
    before, whole = verify(ledger), ledger.read_bytes()
    harmless = 0
    for offset in chance.sample(range(len(whole)), FLIPS):
        mask = chance.randrange(1, 256)
        flip_bytes(ledger, whole, [offset], mask)
        result = verify(ledger)
        assert result.code == 5 or result == before, f"byte {offset} with {mask}: {result.text}"
        harmless += result.code == 0
    print(
        f"{FLIPS} of {len(whole)} bytes flipped, {FLIPS - harmless} detected, the others harmless"
    )
    assert 0 < harmless < FLIPS


@pytest.mark.parametrize("part", ["digest", "payload"])
def test_a_flipped_byte_of_a_record_is_detected(ledger: Path, verify: Verify, part: str) -> None:
    """The file can contain unused old copies of a row, so the byte is flipped in every copy."""
    chance = seeded_random(f"verify-flips-{part}")
    whole = ledger.read_bytes()
    store = open_existing(str(ledger))
    parts = {record.sequence: bytes(getattr(record, part)) for record in store.records_after(0)}
    store.close()
    positions = [
        (record, offset) for record, content in parts.items() for offset in range(len(content))
    ]
    for record, offset in chance.sample(positions, FLIPS):
        copies = [m.start() + offset for m in re.finditer(re.escape(parts[record]), whole)]
        mask = chance.randrange(1, 256)
        flip_bytes(ledger, whole, copies, mask)
        result = verify(ledger)
        message = f"byte {offset} of record {record} with {mask}: {result.text}"
        assert (result.code, result.records) == (5, [record]), message


def test_an_unreadable_file_is_reported_as_json(ledger: Path, verify: Verify) -> None:
    flip_bytes(ledger, ledger.read_bytes(), range(16), 0xFF)
    result = verify(ledger)
    assert (result.code, result.json["records"], result.json["head"], result.records) == (
        5,
        0,
        "",
        [1],
    )


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 10000, -4096, -1])
def test_a_truncated_file_is_detected(ledger: Path, verify: Verify, size: int) -> None:
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: size % len(whole)])
    result = verify(ledger)
    assert result.code == 5
    assert result.text
