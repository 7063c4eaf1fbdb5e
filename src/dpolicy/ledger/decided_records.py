"""Quick decoding of decided releases, which are almost all records of a long ledger.

A typed decoder reads the fields that a fold needs and skips the text of the answer, which is most
of a record. It refuses every record of which it is not sure; `events.decode_event_fast` then
decodes the record, and reports the damage if there is any.
"""

from __future__ import annotations

from typing import Literal

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

#: The bytes before the answer of a decided release; no other kind of record starts like this.
_STARTS = {True: b'{"allowed":true,"answer":', False: b'{"allowed":false,"answer":'}
_ANY_START = tuple(_STARTS.values())
_AFTER_MECHANISMS = b',"release":'
_MECHANISMS = b'"mechanisms":'


class _DecidedBody(Struct, forbid_unknown_fields=True, gc=False):
    """The body of a release without `utility`, with its mechanisms as bytes."""

    mechanisms: Raw
    release: str
    by: str = ""


class DecidedRecord(Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a decided release of format 3; the answer is skipped."""

    allowed: bool
    answer: Raw
    at: str
    body: _DecidedBody
    by: str
    event: Literal["release-decided"]
    expires: str | None
    format: Literal[3]
    meaning: str
    release: str
    reserved: bool


_decode = Decoder(DecidedRecord).decode


def decode_decided_record(payload: bytes) -> tuple[DecidedRecord, bytes] | None:
    """Return the fields of a decided release and the bytes of its mechanisms.

    Return None for any other record, and for a record that is damaged or unusual. The mechanisms
    are checked only to be JSON: a caller must know these bytes from an earlier record.
    """
    if not payload.startswith(_ANY_START):
        return None
    try:
        if not payload.isascii():
            payload.decode("utf-8")
        decided = _decode(payload)
        mechanisms = _slice_mechanisms(payload, decided)
    except (MsgspecError, ValueError, RecursionError):
        return None
    if mechanisms != bytes(decided.body.mechanisms):
        return None
    return None if decided.reserved and decided.expires is None else (decided, mechanisms)


def _slice_mechanisms(payload: bytes, decided: DecidedRecord) -> bytes:
    """Return what `events.mechanism_bytes` returns, without a search in the answer.

    The answer must be a text at its place, so that it does not contain the bytes `"body":`. Raise
    `ValueError` if it is not, or if the keys are missing.
    """
    answer, start = bytes(decided.answer), len(_STARTS[decided.allowed])
    if not (answer.startswith(b'"') and payload.startswith(answer, start)):
        raise ValueError("the answer is no text, or not at its place")
    body = payload.index(b'"body":', start + len(answer))
    first = payload.index(_MECHANISMS, body) + len(_MECHANISMS)
    event_release = payload.rindex(_AFTER_MECHANISMS)
    return payload[first : payload.rindex(_AFTER_MECHANISMS, 0, event_release)]
