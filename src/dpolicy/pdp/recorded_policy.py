"""Compiled policy of a record, with the defaults of the version that wrote the record.

A recorded text keeps its meaning: where a later version changed a default, the policy of an older
record keeps the old one.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.ledger.events import PolicyApplied, PolicyProposed
from dpolicy.privacy.thresholds import DEFAULT_LEAKS, LEAKS_OF_VERSION_0_2
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: The first format of policy records whose texts have the present default of `accounting: leaks`.
FIRST_FORMAT_WITH_DEFAULT_LEAKS = 3


def compile_recorded_policy(
    event: PolicyApplied | PolicyProposed, record_format: int = 1
) -> CompiledPolicy:
    """Compile the policy of an event from the texts that the event contains."""
    sources = [Source(name, text) for name, text in event.sources]
    return compile_policy(sources, default_leaks_for_format(record_format))


def default_leaks_for_format(record_format: int) -> Fraction:
    """Return the default share of δ for stated leaks of a policy record of this format."""
    if record_format < FIRST_FORMAT_WITH_DEFAULT_LEAKS:
        return LEAKS_OF_VERSION_0_2
    return DEFAULT_LEAKS
