"""`dpolicy verify`: recompute hash chain, state and decisions of a ledger."""

from __future__ import annotations

import click

from dpolicy.cli.exit_codes import TAMPERED
from dpolicy.cli.ledger_option import ledger_option
from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.store_address import open_existing
from dpolicy.pdp.audits.audit import AuditFinding, AuditReport, audit_ledger


@click.command()
@ledger_option
@format_option
def command(ledger: str, format_: str) -> int:
    """Verify the hash chain and recompute every decision from the first record."""
    audit = _audit(ledger)
    if format_ == "json":
        print_json(
            {
                "ok": not audit.findings,
                "records": audit.records,
                "head": audit.head,
                "findings": [{"record": f.sequence, "problem": f.problem} for f in audit.findings],
            }
        )
    elif audit.findings:
        for finding in audit.findings:
            click.echo(f"record {finding.sequence}: {finding.problem}")
    else:
        count = "1 record" if audit.records == 1 else f"{audit.records} records"
        click.echo(f"{count} verified; the last hash is {audit.head or 'none'}")
    return TAMPERED if audit.findings else 0


def _audit(ledger: str) -> AuditReport:
    """Audit the ledger; report a store that cannot be opened as a finding at record 1."""
    try:
        store = open_existing(ledger)
    except LedgerDamaged as error:
        return AuditReport(0, "", (AuditFinding(1, str(error)),))
    try:
        return audit_ledger(store)
    finally:
        store.close()
