"""`dpolicy copy`: copy a ledger to another store, record by record."""

from __future__ import annotations

from collections import deque
from itertools import islice

import click

from dpolicy.cli.ledger_option import ledger_option
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import LedgerDamaged, OperationRejected
from dpolicy.ledger.chain import Record, check_chain
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.store_address import open_existing, open_store

#: Number of records in one commit.
BATCH = 1_000


@click.command()
@click.argument("target")
@ledger_option
@format_option
def command(target: str, ledger: str, format_: str) -> int:
    """Copy the ledger to TARGET, a path or a postgresql:// URL, while it is in use.

    If TARGET contains the first records of the same ledger, the command appends the missing ones.
    If it contains anything else, the command fails and writes nothing. Use it for backups and to
    move a ledger to another store.
    """
    if target == ledger:
        raise OperationRejected("TARGET is the ledger itself")
    source, copy = open_existing(ledger), open_store(target)
    try:
        head = _append_missing(source, copy)
    finally:
        source.close()
        copy.close()
    sequence, digest = (head.sequence, head.digest.hex()) if head else (0, "")
    if format_ == "json":
        print_json({"target": target, "sequence": sequence, "head": digest})
    else:
        print_note(f"{target} has {sequence} records; the last hash is {digest or 'none'}")
    return 0


def _append_missing(source: LedgerStore, copy: LedgerStore) -> Record | None:
    """Append the missing records to the copy; return the last record."""
    last = next(iter(deque(copy.records_after(0), maxlen=1)), None)
    if last is not None:
        _check_common_records(source, last)
    missing = source.records_after(last.sequence if last else 0)
    while batch := list(islice(missing, BATCH)):
        for record in batch:
            check_chain(last, record)
            last = record
        with copy.open_for_writing() as log:
            log.append(batch)
    return last


def _check_common_records(source: LedgerStore, last: Record) -> None:
    same = next(iter(source.records_after(last.sequence - 1)), None)
    if same is None or same.digest != last.digest:
        raise LedgerDamaged(f"the target is a different ledger: record {last.sequence} differs")
