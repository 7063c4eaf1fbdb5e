"""Compiled policy of a record, with the defaults of the version that wrote the record.

A recorded text keeps its meaning: where a later version changed a default, the policy of an older
record keeps the old one. A record of format 3 has the number of its defaults.
"""

from __future__ import annotations

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.errors import InvariantBroken, LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, PolicyProposed, from_bytes
from dpolicy.policy.accounting.accounting_defaults import DEFAULTS, FIRST_DEFAULTS
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: Errors that earlier versions did not report. A ledger with such a policy can still be opened;
#: the strict reading applies: `household-month` is no month of a user.
LATER_ERRORS = frozenset({"P018"})


def compile_recorded_policy(event: PolicyApplied | PolicyProposed) -> CompiledPolicy:
    """Compile the policy of an event from the texts that the event contains.

    A policy that was applied is compiled even if it has `LATER_ERRORS`. Raise
    `LedgerDamaged` if this version does not know the defaults of the record.
    """
    number = FIRST_DEFAULTS.number if event.defaults is None else event.defaults
    defaults = DEFAULTS.get(number)
    if defaults is None:
        raise LedgerDamaged(f"record has the unknown policy defaults {number}")
    sources = [Source(name, text) for name, text in event.sources]
    tolerated = LATER_ERRORS if isinstance(event, PolicyApplied) else frozenset[str]()
    return compile_policy(sources, defaults, tolerated)


def enforce_recorded_policy(record: Record) -> EnforcedPolicy:
    """Return the policy of the record of a `PolicyApplied`, compiled for enforcement."""
    event = from_bytes(record.payload)
    if not isinstance(event, PolicyApplied):
        raise InvariantBroken("the record is not that of a policy")
    return enforce(compile_recorded_policy(event))
