"""Snapshot: a ledger state as bytes, so that a process need not fold a long ledger.

A snapshot is a cache and never a source of truth. It is used only if the same version of the code
wrote it at a record that the ledger still contains; otherwise the process folds the ledger.
`dpolicy verify` never reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any
from zipfile import BadZipFile

import numpy as np

from dpolicy import __version__
from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedSection, enforce
from dpolicy.balances.rule_grids import RuleGrid
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, from_bytes
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.pdp.state.charge_groups import ChargeGroup, SpendingTotals
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.open_reservations import OpenReservations
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.pdp.state.release_archive import ReleaseArchive
from dpolicy.pdp.state.release_table import ReleaseTable
from dpolicy.privacy.loss_arrays import loss_width

#: Version of the code and of the format. Increase the number when losses or states change.
WRITTEN_BY = f"dpolicy {__version__} snapshot 5"


def write_snapshot(state: LedgerState) -> bytes:
    """Return the snapshot of a state that has a policy and updated balances."""
    balances, out = state.balances, BytesIO()
    touched = np.flatnonzero(balances.finite.any(axis=1) | balances.infinite.any(axis=1))
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(_build_header(state)).encode("utf-8"), np.uint8),
        "touched": touched,
        "finite": balances.finite[touched],
        "infinite": balances.infinite[touched],
        **state.archive_releases().to_arrays(),
    }
    for number, grid in enumerate(balances.grids.grids):
        arrays |= {f"{number} {name}": part for name, part in grid.to_arrays().items()}
    np.savez(out, allow_pickle=False, **arrays)
    return out.getvalue()


def _build_header(state: LedgerState) -> dict[str, Any]:
    return {
        "by": WRITTEN_BY,
        "digest": state.head.digest.hex() if state.head else "",
        "policy": state.policy_record,
        "open": state.open_reservations,
        "month": state.month,
        "cutoff": state.totals.cutoff,
        "contents": [
            (group.by, group.mechanisms.decode("utf-8"), group.meaning, group.month, group.count)
            for group in state.charge_groups
        ],
        "grids": len(state.balances.grids.grids),
        "proposals": list(state.proposals.values()),
    }


#: Errors of a snapshot that is damaged or cut off. `LedgerDamaged` is not among them: a ledger that
#: is shorter than its snapshot was replaced by an older copy, and that must be reported.
_INVALID = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration),
    *(EOFError, OSError, BadZipFile),
)


def read_snapshot(
    sequence: int, data: bytes, record_at: Callable[[int], Record]
) -> LedgerState | None:
    """Return the state of a snapshot; None if the snapshot is not valid for this ledger."""
    try:
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            head = record_at(sequence)
            if header["by"] != WRITTEN_BY or header["digest"] != head.digest.hex():
                return None
            event = from_bytes(record_at(header["policy"]).payload)
            if not isinstance(event, PolicyApplied):
                return None
            state = _read_entries(header, arrays, head)
            totals = SpendingTotals(enforce(compile_recorded_policy(event)))
            balances = _read_balances(totals.section, header, arrays)
            totals.restore(balances, state.charge_groups, header["cutoff"])
            state.restore(totals, header["policy"])
            for fields in header["proposals"]:
                state.proposals.add(Proposal(*fields))
            return state
    except _INVALID:
        return None


def _read_entries(header: dict[str, Any], arrays: Any, head: Record) -> LedgerState:
    groups = [
        ChargeGroup(by, text.encode("utf-8"), meaning, month, [], count, number)
        for number, (by, text, meaning, month, count) in enumerate(header["contents"])
    ]
    archive = ReleaseArchive.from_arrays(arrays)
    counts = [group.count for group in groups]
    if archive.count_by_group(len(groups)).tolist() != counts:
        raise ValueError("the releases of the snapshot do not match its contents")
    return LedgerState(
        head=head,
        entries=ReleaseTable(archive),
        open_reservations=OpenReservations(header["open"]),
        charge_groups=groups,
        month=header["month"],
    )


def _read_balances(section: EnforcedSection, header: dict[str, Any], arrays: Any) -> Balances:
    balances = section.empty_balances()
    if arrays["finite"].shape[1] != loss_width(section.certificates):
        raise ValueError("the snapshot has losses in other certificates")
    balances.finite[arrays["touched"]] = arrays["finite"]
    balances.infinite[arrays["touched"]] = arrays["infinite"]
    names = ("space", "low", "high", "amounts", "merged", "rules", "shape")
    for number in range(header["grids"]):
        parts = {name: arrays[f"{number} {name}"] for name in names}
        balances.grids.store(RuleGrid.from_arrays(parts))
    return balances
