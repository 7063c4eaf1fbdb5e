"""Canonical bytes, events and their chain: no value is lost, and every change is detected."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpolicy.errors import InvariantBroken, LedgerDamaged, PolicyRejected
from dpolicy.ledger.canonical import (
    canonical_text,
    decode_canonical,
    encode_canonical,
)
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.event_schema import ADDED_FIELDS, DATED_FIELDS, EVENT_FIELDS
from dpolicy.ledger.events import (
    KINDS,
    Event,
    PolicyApplied,
    PolicyProposed,
    ProposalAnswered,
    RelabellingProposed,
    ReleaseCommitted,
    ReleaseDecided,
    ReleaseExpired,
    ReleaseImported,
    ReleaseProposed,
    ReleaseRelabelled,
    ReleaseVoided,
    VoidProposed,
    check_body,
    decode_event_fast,
    event_author,
    from_bytes,
    mechanism_bytes,
    next_record,
    to_bytes,
)
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit
from dpolicy.releases.meaning import (
    MechanismMeaning,
    RecordedPartition,
    ReleaseMeaning,
    meaning_to_text,
)
from dpolicy.releases.release_format import RELEASE
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.text.decimals import format_decimal
from dpolicy.text.shapes import NameShape, RecordShape
from dpolicy.text.value_checks import ValueCheck

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
AT = datetime(2026, 10, 28, 12, tzinfo=UTC).isoformat(timespec="seconds")

#: Decimals of any size.
DECIMALS = st.builds(
    lambda digits, exponent: Fraction(digits) * Fraction(10) ** exponent,
    st.integers(-(10**30), 10**30),
    st.integers(-60, 60),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | TEXT | DECIMALS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)
BODY: dict[str, Any] = {
    "release": "views-1",
    "by": "web — analytics",
    "mechanisms": [
        {
            "name": "histogram",
            "mechanism": {"kind": "gaussian", "sigma": Fraction("57.8"), "sensitivity": 10},
            "attributes": ["views"],
            "labels": {"purpose": ["product", "research"], "stage": "final"},
            "where": [{"age": {"from": 18, "to": 64}, "country": ["CH"]}],
            "time": {"from": "2026-10-28", "to": "2026-10-28"},
            "additive": True,
        },
        {"mechanism": {"kind": "declared", "epsilon": Fraction("0.5"), "delta": Fraction("1e-9")}},
    ],
}
#: Events of the formats 1 and 2.
OLD_EVENTS: dict[str, Event] = {
    "policy-applied": PolicyApplied(
        AT, "officer", "first", "sha256:00", (("p.yaml", "dpolicy: 1\n"),), ("global × any",)
    ),
    "release-decided": ReleaseDecided(
        AT, "ana", "views-1", BODY, True, True, "2026-10-29T12:00:00+00:00", '{"decision":"allow"}'
    ),
    "release-committed": ReleaseCommitted(AT, "ana", "views-1", BODY),
    "release-voided": ReleaseVoided(AT, "ana", "views-1", "never started"),
    "release-expired": ReleaseExpired(AT, "views-1"),
    "release-imported": ReleaseImported(AT, "officer", "from the wiki", "views-1", BODY),
    "release-relabelled": ReleaseRelabelled(AT, "officer", "a wrong label", "views-1", BODY),
    "release-proposed": ReleaseProposed(AT, "ana", "views-1", BODY, True),
    "void-proposed": VoidProposed(AT, "ana", "views-1", "never started"),
    "policy-proposed": PolicyProposed(
        AT, "officer", "looser", "sha256:00", (("p.yaml", "dpolicy: 1\n"),), ()
    ),
    "proposal-answered": ProposalAnswered(AT, "ben", "agreed", 7, True),
}
MEANING = meaning_to_text(
    ReleaseMeaning(
        {"user": PrivacyUnit("user", "user")},
        {
            "age": RecordedPartition(False, True, ("user",)),
            "country": RecordedPartition(True, True, ("user",)),
        },
        (
            MechanismMeaning(
                "user",
                NeighbouringRelation.ADD_REMOVE,
                ("views",),
                {"purpose": ("product", "research"), "stage": "final"},
            ),
            MechanismMeaning(
                "user",
                NeighbouringRelation.ADD_REMOVE,
                (),
                {"purpose": None, "stage": "final"},
            ),
        ),
    )
)
ADDED_VALUES: dict[str, Any] = {"meaning": MEANING, "defaults": 1}
#: Events of format 3.
NEW_EVENTS: dict[str, Event] = {
    **{
        name: replace(OLD_EVENTS[name], **{field: ADDED_VALUES[field]})
        for name, (field, _) in ADDED_FIELDS.items()
    },
    "relabelling-proposed": RelabellingProposed(
        AT, "ana", "a wrong label", "views-1", BODY, MEANING
    ),
}
#: Events of format 4: an imported release with its own date.
DATED_EVENTS: dict[str, Event] = {
    "release-imported": ReleaseImported(
        AT, "ana", "from the wiki", "views-1", BODY, MEANING, "2024-02-29"
    )
}
#: An event of each kind in its newest format.
EVENTS: dict[str, Event] = OLD_EVENTS | NEW_EVENTS | DATED_EVENTS


@given(VALUES)
def test_values_come_back(value: object) -> None:
    assert decode_canonical(encode_canonical(value)) == value
    assert encode_canonical(decode_canonical(encode_canonical(value))) == encode_canonical(value)


@given(DECIMALS)
def test_decimals_are_exact_and_json(value: Fraction) -> None:
    text = format_decimal(value)
    assert Fraction(text) == value
    assert json.loads(text, parse_float=Fraction, parse_int=Fraction) == value


@given(st.dictionaries(TEXT, DECIMALS, min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, Fraction]) -> None:
    assert encode_canonical(dict(reversed(value.items()))) == encode_canonical(value)


JSON = st.recursive(
    st.none() | st.booleans() | DECIMALS | TEXT | st.just("\x00") | st.just("\\u0000"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_the_fast_encoder_agrees_with_the_reference(value: object) -> None:
    assert encode_canonical(value).decode("utf-8") == canonical_text(value)


@given(JSON, TEXT, st.booleans(), st.booleans())
def test_mechanism_bytes_are_exact(
    value: object, by: str, imported: bool, has_meaning: bool
) -> None:
    """The other fields of the event may hold any text."""
    body = {"release": by, "by": by, "mechanisms": [value], "utility": Fraction(1, 2)}
    body_text = encode_canonical(body).decode("utf-8")
    meaning = body_text if has_meaning else None
    event = (
        ReleaseImported(by, by, by, by, body, meaning)
        if imported
        else ReleaseDecided(by, by, by, body, True, False, None, body_text, meaning)
    )
    assert mechanism_bytes(to_bytes(event)) == encode_canonical([value])


def _added_checks(name: str) -> list[tuple[str, ValueCheck]]:
    """Return the fields that formats 3 and 4 added to a kind of event, with their checks."""
    return [added[name] for added in (ADDED_FIELDS, DATED_FIELDS) if name in added]


def test_the_schema_keeps_the_invariant_of_mechanism_bytes() -> None:
    """No event field but the body holds a map, and `release` follows `mechanisms` in the body."""
    maps: list[Any] = [{}, [{}], [["name", {}]], BODY]
    for name, checks in EVENT_FIELDS.items():
        for field, is_valid in [*checks.items(), *_added_checks(name)]:
            assert field == "body" or not any(map(is_valid, maps)), (name, field)
    assert isinstance(RELEASE, RecordShape)
    assert sorted(RELEASE.fields) == ["by", "mechanisms", "release", "utility"]
    assert isinstance(RELEASE.fields["by"].shape, NameShape)


@pytest.mark.parametrize(
    ("event_fields", "body_fields"),
    [
        ({"aside": {"body": {"mechanisms": []}}}, {}),  # a map before the body
        ({"source": {"at": "", "release": ""}}, {}),  # a map after the body
        ({}, {"author": {"mechanisms": []}}),  # a map before the mechanisms
        ({}, {"notes": "between the mechanisms and the id"}),
    ],
)
def test_the_canary_breaks_the_invariant_of_mechanism_bytes(
    event_fields: dict[str, Any], body_fields: dict[str, Any]
) -> None:
    record = decode_canonical(to_bytes(EVENTS["release-imported"]))
    payload = encode_canonical({**record, **event_fields, "body": {**BODY, **body_fields}})
    assert mechanism_bytes(to_bytes(EVENTS["release-imported"])) == encode_canonical(
        BODY["mechanisms"]
    )
    assert mechanism_bytes(payload) != encode_canonical(BODY["mechanisms"])


@pytest.mark.parametrize("value", [Fraction(1, 3), {1, 2}, b"bytes"])
def test_a_value_without_a_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvariantBroken):
        encode_canonical(value)


def test_there_is_an_event_of_each_kind() -> None:
    assert EVENTS.keys() == KINDS.keys()


def test_the_schema_names_the_fields_of_every_event() -> None:
    assert EVENT_FIELDS.keys() == KINDS.keys()
    for name, kind in KINDS.items():
        added = [field for field, _ in _added_checks(name)]
        assert [*EVENT_FIELDS[name], *added] == [f.name for f in fields(kind)], name


def test_the_author_of_an_event() -> None:
    assert event_author(EVENTS["release-expired"]) == ""
    for event in EVENTS.values():
        assert event_author(event) == getattr(event, "by", "")


@pytest.mark.parametrize(
    ("file", "events"),
    [
        ("events.json", OLD_EVENTS),
        ("events-3.json", NEW_EVENTS),
        ("events-4.json", DATED_EVENTS),
    ],
)
def test_golden_bytes_are_written_and_read_today(file: str, events: dict[str, Event]) -> None:
    golden: dict[str, str] = json.loads((GOLDEN / file).read_text("utf-8"))
    assert golden.keys() == events.keys()
    for name, text in golden.items():
        assert to_bytes(events[name]) == text.encode("utf-8"), name
        assert from_bytes(text.encode("utf-8")) == events[name], name


@pytest.mark.parametrize("name", ADDED_FIELDS)
def test_an_added_field_makes_the_format_3(name: str) -> None:
    """A record has the added field if and only if its format is 3."""
    field, _ = ADDED_FIELDS[name]
    old, new = (decode_canonical(to_bytes(events[name])) for events in (OLD_EVENTS, NEW_EVENTS))
    assert (old["format"] < 3, field in old) == (True, False)
    assert (new["format"], field in new) == (3, True)
    for record in ({**old, "format": 3}, {**new, "format": old["format"]}):
        with pytest.raises(LedgerDamaged):
            from_bytes(encode_canonical(record))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 3},
        {"released": "2024-02-30"},
        {"released": "20240229"},
        {"released": "2024-W09-4"},
        {"released": None},
        {"released": Fraction(2024)},
        {"released": {"day": "2024-02-29"}},
    ],
)
def test_a_date_makes_the_format_4_and_is_a_day(change: dict[str, Any]) -> None:
    record = decode_canonical(to_bytes(DATED_EVENTS["release-imported"]))
    assert record["format"] == 4
    with pytest.raises(LedgerDamaged):
        from_bytes(encode_canonical({**record, **change}))
    undated = decode_canonical(to_bytes(NEW_EVENTS["release-imported"]))
    with pytest.raises(LedgerDamaged):
        from_bytes(encode_canonical({**undated, "format": 4}))


@given(TEXT, TEXT, st.booleans(), st.none() | TEXT, st.dictionaries(TEXT, VALUES))
def test_events_come_back(
    by: str, release: str, allowed: bool, expires: str | None, parameters: dict[str, Any]
) -> None:
    body = {"release": release, "by": by, "mechanisms": [{"mechanism": {**parameters, "kind": by}}]}
    event = ReleaseDecided(AT, by, release, body, allowed, False, expires, "{}")
    assert from_bytes(to_bytes(event)) == event
    assert from_bytes(to_bytes(ReleaseCommitted(AT, by, release, None))) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"event":"release-expired","format":2,"at":"","release":""}',
        b'{"at":"","event":"release-expired","format":2,"release":""}',
        b'{"at":"","event":"release-expired","format":3,"release":""}',
        b'{"at":"","because":"","by":"","event":"void-proposed","format":1,"release":""}',
        b'{"approved":true,"at":"","because":"","by":"","event":"proposal-answered","format":2,"proposal":0.5}',
        b'{"approved":true,"at":"","because":"","by":"","event":"proposal-answered","format":2,"proposal":true}',
        b'{"event":"unheard-of","format":1}',
        b'{"at":"","event":"release-expired","format":1}',
        b'{"at": "","event":"release-expired","format":1,"release":""}',
        b'{"event":"release-expired","at":"","format":1,"release":""}',
        b'{"at":"","event":"release-expired","format":1.0,"release":""}',
        b'{"at":"\\ud800","event":"release-expired","format":1,"release":""}',
        b'{"at":"","event":["release-expired"],"format":1,"release":""}',
        b'{"at":"","event":"release-expired","format":true,"release":""}',
    ],
)
def test_bytes_that_are_not_a_canonical_event_are_damage(payload: bytes) -> None:
    with pytest.raises(LedgerDamaged):
        from_bytes(payload)


@pytest.mark.parametrize(
    ("name", "field"), [(name, f.name) for name, kind in KINDS.items() for f in fields(kind)]
)
@pytest.mark.parametrize("value", [-1, Fraction("0.5"), [[]], [1], {}, [["a", 1]], [["a"] * 3]])
def test_a_field_of_the_wrong_shape_is_damage(name: str, field: str, value: object) -> None:
    record = decode_canonical(to_bytes(EVENTS[name]))
    payload = encode_canonical({**record, field: value})
    for decode in (from_bytes, decode_event_fast):
        if field == "body" and decode is decode_event_fast:
            continue  # the fast decoder does not check bodies
        with pytest.raises(LedgerDamaged, match=f"`{name}` has an invalid `{field}`"):
            decode(payload)


MECHANISM: dict[str, Any] = {"mechanism": {"kind": "declared"}}
BODIES: list[dict[str, Any]] = [
    {"mechanisms": [MECHANISM]},
    {"release": "r"},
    {"release": "r", "mechanisms": []},
    {"release": "r", "mechanisms": MECHANISM},
    {"release": "r", "mechanisms": [{}]},
    {"release": "r", "mechanisms": [{"mechanism": {}}]},
    {"release": "r", "mechanisms": [{"mechanism": {"kind": 1}}]},
    {"release": 1, "mechanisms": [MECHANISM]},
    {"release": "r", "by": None, "mechanisms": [MECHANISM]},
    {"release": "r", "utility": "high", "mechanisms": [MECHANISM]},
    *(
        {"release": "r", "mechanisms": [{**MECHANISM, key: value}]}
        for key, value in [
            ("name", 1),
            ("unit", ["user"]),
            ("relation", "sibling"),
            ("additive", 1),
            ("also", {"user": 1}),
            ("attributes", "zip"),
            ("labels", {"stage": {}}),
            ("where", {"country": ["CH"]}),
            ("where", [{"country": []}]),
            ("where", [{"age": {"from": 1}}]),
            ("time", {"from": "2026-02-30"}),
            ("time", {"to": 1}),
        ]
    ),
]


#: The fold reports the body, or earlier that a committed release is not in the ledger.
BODY_DAMAGE = "has an invalid `body`|has no release body|refers to unknown release"


@pytest.mark.parametrize("body", BODIES, ids=lambda body: encode_canonical(body).decode("utf-8"))
def test_a_body_of_the_wrong_shape_is_damage(body: dict[str, Any]) -> None:
    for event in (
        ReleaseImported(AT, "", "", "r", body),
        ReleaseCommitted(AT, "", "r", body),
        ReleaseDecided(AT, "", "r", body, True, False, None, "{}"),
    ):
        with pytest.raises(LedgerDamaged, match="has an invalid `body`"):
            from_bytes(to_bytes(event))
        with pytest.raises(LedgerDamaged, match=BODY_DAMAGE):
            LedgerState().fold([next_record(None, event)])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "not — a name", "unit": "", "key-of-a-later-version": {"any": [1]}},
        {"mechanism": {"kind": "kind-of-a-later-version"}},
        {"where": [], "labels": {}, "attributes": [], "also": {}, "time": {}},
        {"where": [{"age": {"from": Fraction("0.5"), "to": 10**13, "step": 2}}]},
        {"time": {"from": "20261028"}},
    ],
)
def test_a_recorded_body_may_break_rules_of_files(changes: dict[str, Any]) -> None:
    """The ledger checks structure only: a later version may change names, limits and keys."""
    body = {"release": "r", "mechanisms": [{**MECHANISM, **changes}]}
    with pytest.raises(PolicyRejected):
        release_from_plain({**body, "another": 1})
    check_body(body)
    check_body({**body, "another": 1})
    assert from_bytes(to_bytes(ReleaseImported(AT, "", "", "r", body))) is not None


def test_a_reservation_without_an_expiry_time_is_damage() -> None:
    event = ReleaseDecided(AT, "", "views-1", BODY, True, True, None, "{}")
    for decode in (from_bytes, decode_event_fast):
        with pytest.raises(LedgerDamaged, match="reservation record has no expiry time"):
            decode(to_bytes(event))


def chain() -> list[Record]:
    records: list[Record] = []
    for event in EVENTS.values():
        records.append(next_record(records[-1] if records else None, event))
    return records


def first_fault(records: list[Record]) -> str | None:
    previous: Record | None = None
    for record in records:
        try:
            check_chain(previous, record)
        except LedgerDamaged as error:
            return str(error)
        previous = record
    return None


@settings(max_examples=200)
@given(st.integers(0, 6), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_reported_with_its_record(number: int, position: int, flip: int) -> None:
    records = chain()
    payload = bytearray(records[number].payload)
    payload[position % len(payload)] ^= flip
    records[number] = Record(number + 1, records[number].digest, bytes(payload))
    assert f"hash mismatch at record {number + 1}: " in (first_fault(records) or "")


@pytest.mark.parametrize("number", range(6))
def test_a_dropped_record_is_reported_with_its_number(number: int) -> None:
    records = chain()
    del records[number]
    assert f"record {number + 1} is missing" in (first_fault(records) or "")


@pytest.mark.parametrize("number", range(6))
def test_swapped_records_are_reported(number: int) -> None:
    a, b = chain()[number : number + 2]
    renumbered = [Record(a.sequence, b.digest, b.payload), Record(b.sequence, a.digest, a.payload)]
    for pair, fault in (
        ([b, a], "missing"),
        (renumbered, f"hash mismatch at record {number + 1}:"),
    ):
        records = chain()
        records[number : number + 2] = pair
        assert fault in (first_fault(records) or "")


def test_an_untouched_chain_has_no_fault() -> None:
    assert first_fault(chain()) is None


def test_the_audit_names_the_records_that_it_cannot_read() -> None:
    """One event of each kind is not a valid ledger: wrong digest, unknown labels, duplicate id."""
    findings = audit_ledger(MemoryStore(chain())).findings
    assert [finding.sequence for finding in findings[:2]] == [1, 2]
    assert findings[-1].sequence == 6
    assert "twice" in findings[-1].problem
