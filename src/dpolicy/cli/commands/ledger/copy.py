"""`dpolicy copy`: a ledger into another place, record by record."""

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

#: Records that are written in one commit.
BATCH = 1_000


@click.command()
@click.argument("target")
@ledger_option
@format_option
def command(target: str, ledger: str, format_: str) -> int:
    """Copy the ledger to TARGET, a path or a postgresql:// address, while others go on using it.

    A target that holds a beginning of the same ledger is brought up to date; anything else in it is
    an error, and nothing is written. So this is a backup, and a way from one store to another.
    """
    if target == ledger:
        raise OperationRejected("the target is the ledger itself")
    source, copy = open_existing(ledger), open_store(target)
    try:
        head = _brought_up_to_date(source, copy)
    finally:
        source.close()
        copy.close()
    sequence, digest = (head.sequence, head.digest.hex()) if head else (0, "")
    if format_ == "json":
        print_json({"target": target, "sequence": sequence, "head": digest})
    else:
        print_note(f"{target} holds {sequence} records; the last hash is {digest or 'none'}")
    return 0


def _brought_up_to_date(source: LedgerStore, copy: LedgerStore) -> Record | None:
    """The last record of both."""
    last = next(iter(deque(copy.records_after(0), maxlen=1)), None)
    if last is not None:
        _check_beginning(source, last)
    rest = source.records_after(last.sequence if last else 0)
    while batch := list(islice(rest, BATCH)):
        for record in batch:
            check_chain(last, record)
            last = record
        with copy.open_for_writing() as log:
            log.append(batch)
    return last


def _check_beginning(source: LedgerStore, last: Record) -> None:
    same = next(iter(source.records_after(last.sequence - 1)), None)
    if same is None or same.digest != last.digest:
        raise LedgerDamaged(f"the target holds another ledger: they differ at {last.sequence}")
