"""Compiled policy of a record, with the defaults of the version that wrote the record.

A recorded text keeps its meaning: where a later version changed a default, the policy of an older
record keeps the old one. A record of format 3 has the number of its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.events import PolicyApplied, PolicyProposed
from dpolicy.privacy.thresholds import DEFAULT_LEAKS, LEAKS_OF_VERSION_0_2
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: The default share of δ for stated leaks, by the number of the defaults.
_LEAKS_BY_DEFAULTS: Mapping[int, Fraction] = {1: LEAKS_OF_VERSION_0_2, 2: DEFAULT_LEAKS}

#: The defaults of records without a number, which versions before 0.3 wrote.
FIRST_DEFAULTS = 1

#: Errors that those versions did not report. A ledger with such a policy can still be opened; the
#: strict reading applies: `household-month` is no month of a user.
LATER_ERRORS = frozenset({"P018"})

#: The defaults of the policy language of this version.
NEWEST_DEFAULTS = 2


def compile_recorded_policy(event: PolicyApplied | PolicyProposed) -> CompiledPolicy:
    """Compile the policy of an event from the texts that the event contains.

    A policy that an earlier version applied is compiled even if it has `LATER_ERRORS`. Raise
    `LedgerDamaged` if this version does not know the defaults of the record.
    """
    number = FIRST_DEFAULTS if event.defaults is None else event.defaults
    if number not in _LEAKS_BY_DEFAULTS:
        raise LedgerDamaged(f"record has the unknown policy defaults {number}")
    sources = [Source(name, text) for name, text in event.sources]
    is_old = number == FIRST_DEFAULTS and isinstance(event, PolicyApplied)
    tolerated = LATER_ERRORS if is_old else frozenset[str]()
    return compile_policy(sources, _LEAKS_BY_DEFAULTS[number], tolerated)
