"""A state ↔ bytes, so that a long ledger need not be read from its first record.

Only a cache: it is used if the same version of the code wrote it at a record that is still there,
and whatever else is wrong with it, the ledger is read instead. `dpolicy verify` never looks at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO
from typing import Any
from zipfile import BadZipFile

import numpy as np

from dpolicy.balances.balances import Balances
from dpolicy.balances.segments import Segments
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, from_bytes
from dpolicy.pdp.charge_groups import ChargeGroup, SpendingTotals
from dpolicy.pdp.ledger_state import (
    STATUSES,
    LedgerState,
    Proposal,
    ReleaseEntry,
    compile_recorded_policy,
)
from dpolicy.privacy.loss_arrays import loss_width

#: What a snapshot depends on besides the ledger; raised whenever losses or states change.
WRITTEN_BY = f"dpolicy {version('dpolicy')} snapshot 3"


def write_snapshot(state: LedgerState) -> bytes:
    """A state with a policy as bytes."""
    balances, out = state.balances, BytesIO()
    touched = np.flatnonzero(balances.finite.any(axis=1) | balances.infinite.any(axis=1))
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(_header(state)).encode("utf-8"), np.uint8),
        "status": np.array([STATUSES.index(e.status) for e in state.entries.values()], np.uint8),
        "places": np.array([e[1:] for e in state.entries.values()], np.int64).reshape(-1, 3),
        "touched": touched,
        "finite": balances.finite[touched],
        "infinite": balances.infinite[touched],
    }
    for number, segments in balances.segments.items():
        arrays |= {f"{number} {name}": part for name, part in segments.to_arrays().items()}
    np.savez(out, allow_pickle=False, **arrays)
    return out.getvalue()


def _header(state: LedgerState) -> dict[str, Any]:
    return {
        "by": WRITTEN_BY,
        "digest": state.head.digest.hex() if state.head else "",
        "policy": state.policy_record,
        "releases": list(state.entries),
        "open": state.open_reservations,
        "month": state.month,
        "cutoff": state.account.cutoff,
        "contents": [
            (c.by, c.mechanisms.decode("utf-8"), c.month, c.count) for c in state.charge_groups
        ],
        "segments": list(state.balances.segments),
        "proposals": list(state.proposals.values()),
    }


def read_snapshot(
    sequence: int, data: bytes, record_at: Callable[[int], Record]
) -> LedgerState | None:
    """The state of a snapshot; None if it is of no use."""
    try:
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            head = record_at(sequence)
            if header["by"] != WRITTEN_BY or header["digest"] != head.digest.hex():
                return None
            event = from_bytes(record_at(header["policy"]).payload)
            if not isinstance(event, PolicyApplied):
                return None
            state = _entries(header, arrays, head)
            account = SpendingTotals(compile_recorded_policy(event))
            balances = _balances(account, header, arrays)
            account.restore(balances, state.charge_groups, header["cutoff"])
            proposals = [Proposal(*said) for said in header["proposals"]]
    except (ValueError, KeyError, TypeError, IndexError, OSError, BadZipFile):
        return None
    state.restore(account, header["policy"])
    for said in proposals:
        state.propose(said)
    return state


def _entries(header: dict[str, Any], arrays: Any, head: Record) -> LedgerState:
    said = header["contents"]
    contents = [ChargeGroup(by, text.encode("utf-8"), month, [], n) for by, text, month, n in said]
    words = [STATUSES[number] for number in arrays["status"].tolist()]
    asked, charged, content = arrays["places"].T.tolist()
    entries = map(ReleaseEntry._make, zip(words, asked, charged, content, strict=True))
    return LedgerState(
        head=head,
        entries=dict(zip(header["releases"], entries, strict=True)),
        open_reservations=header["open"],
        charge_groups=contents,
        month=header["month"],
    )


def _balances(account: SpendingTotals, header: dict[str, Any], arrays: Any) -> Balances:
    balances = account.of.empty_balances()
    if arrays["finite"].shape[1] != loss_width(account.of.certificates):
        raise ValueError("losses were kept in other certificates")
    balances.finite[arrays["touched"]] = arrays["finite"]
    balances.infinite[arrays["touched"]] = arrays["infinite"]
    names = ("space", "low", "high", "amounts", "merged")
    for number in header["segments"]:
        parts = {name: arrays[f"{number} {name}"] for name in names}
        balances.set_segments(number, Segments.from_arrays(parts))
    return balances
