"""The quick decoding of decided releases accepts only what the complete decoding accepts."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.ledger.records import chain_records
from tests.pdp.builders import pure, started
from tests.reference.slow_fold import SlowLedgerState

from dpolicy.errors import DPolicyError
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.decided_records import decode_decided_record
from dpolicy.ledger.events import ReleaseDecided, decode_event_fast, mechanism_bytes, to_bytes
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.state import ledger_state
from dpolicy.pdp.state.ledger_state import LedgerState

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
#: Parts that damage a record, or make it unusual but valid.
PARTS = (
    *(b"", b" ", b'"', b"\\", b"\\u12", b"\\ud800", b"\x00", b"\xff", b"\xc3\xa4", b"{", b"}"),
    *(b",", b"null", b"true", b"false", b"NaN", b"1e999", b"9" * 5000, b"[" * 3000, b"3.0"),
    *(b'"body":', b'"mechanisms":', b',"release":', b',"release":"x"', b',"by":"","by":"eve"'),
    *(b',"allowed":false', b',"answer":"{}"', b',"answer":7', b',"expires":""', b',"format":2'),
    *(b',"extra":1', b',"utility":1', b',"reserved":true', b',"at":"2026"'),
)


def make_ledger() -> tuple[Record, ...]:
    """Return a ledger with repeated contents: allowed, denied, reserved, with `utility`.

    The record of the policy is left out: a fold does not need it, and compiling it takes time.
    """
    store = MemoryStore()
    point = started(store=store)
    for number in range(3):
        point.submit({**pure(f"a{number}", "0.1", "zip"), "by": "ana"}, by="ana")
        point.submit(pure(f"deny{number}", "5"))
        point.reserve(pure(f"held{number}", "0.1"))
        point.submit({**pure(f"useful{number}", "0.1"), "utility": Fraction(2)})
    point.commit("held0")
    point.void("held1", "nothing was read")
    payloads = [record.payload for record in store.records_after(1)]
    return tuple(chain_records(Head(), payloads))


LEDGER = make_ledger()


def fold_all(state: LedgerState, records: Iterable[Record]) -> Any:
    """Return everything in a state after folding, or the error."""
    try:
        state.fold(records)
    except DPolicyError as error:
        return type(error), str(error)
    groups = [(g.by, g.mechanisms, g.meaning, g.month, g.count) for g in state.charge_groups]
    spending = [list(state.spending_releases(group)) for group in state.charge_groups]
    releases = (dict(state.entries.items()), state.open_reservations, groups, spending)
    return (*releases, state.month, state.head, state.proposals, state._changed_groups)


@given(TEXT, TEXT, TEXT, TEXT, st.booleans(), st.booleans())
def test_quick_and_complete_decoding_have_the_same_fields(
    release: str, by: str, answer: str, meaning: str, allowed: bool, reserved: bool
) -> None:
    body = {"release": release, "by": by, "mechanisms": [{"name": answer}]}
    expires = answer if reserved else None
    event = ReleaseDecided(
        by, answer, release, body, allowed, reserved, expires, answer, meaning or None
    )
    payload = to_bytes(event)
    fields, quick = decode_event_fast(payload), decode_decided_record(payload)
    if not meaning:
        assert quick is None  # a record of format 1
        return
    assert quick is not None
    decided, mechanisms = quick
    for name in ("allowed", "at", "by", "event", "expires", "format", "meaning", "release"):
        assert getattr(decided, name) == fields[name]
    assert (decided.reserved, decided.body.by) == (reserved, by)
    assert mechanisms == mechanism_bytes(payload)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(LEDGER) - 1),
            st.floats(0, 1, exclude_max=True),
            st.integers(0, 12),
            st.sampled_from(PARTS) | st.binary(max_size=3),
        ),
        max_size=3,
    )
)
@example([(5, 0.99, 0, b'"')])
def test_a_changed_record_gives_the_same_state_or_error(
    changes: list[tuple[int, float, int, bytes]],
) -> None:
    """Every change is chained again, so that only the decoding can detect it."""
    payloads = [record.payload for record in LEDGER]
    for number, place, length, part in changes:
        start = int(place * len(payloads[number]))
        payload = payloads[number]
        payloads[number] = payload[:start] + part + payload[start + length :]
    records = chain_records(Head(), payloads)
    assert fold_all(LedgerState(), records) == fold_all(SlowLedgerState(), records)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_at_every_key_gives_the_same_state_or_error(part: bytes) -> None:
    last = LEDGER[8].payload  # an allowed release of a repeated content
    for start in (n for n, byte in enumerate(last) if byte in b',:{}"'):
        changed = last[:start] + part + last[start:]
        payloads = [*(record.payload for record in LEDGER[:8]), changed]
        records = chain_records(Head(), payloads)
        assert fold_all(LedgerState(), records) == fold_all(SlowLedgerState(), records)


def test_repeated_contents_are_decoded_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the property above could compare the complete decoding with itself."""
    complete: list[bytes] = []

    def follow(payload: bytes) -> dict[str, Any]:
        complete.append(payload)
        return decode_event_fast(payload)

    monkeypatch.setattr(ledger_state, "decode_event_fast", follow)
    LedgerState().fold(LEDGER)
    decided = [p for p in complete if b'"event":"release-decided"' in p]
    assert len(decided) == 4 + 2  # four contents, and two more with `utility`
