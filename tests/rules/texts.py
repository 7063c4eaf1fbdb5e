"""Short ways to compile a policy text in a test."""

from __future__ import annotations

import pytest

from dpolicy.errors import PolicyRejected
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.yaml_reader import Source


def compiled(text: str) -> CompiledPolicy:
    """The policy of one text."""
    return compile_policy([Source("policy.yaml", text)])


def codes(policy: CompiledPolicy) -> list[str]:
    """The codes of its warnings."""
    return [warning.code for warning in policy.warnings]


def diagnostics(text: str) -> list[Diagnostic]:
    """All that is said of a text that is refused."""
    with pytest.raises(PolicyRejected) as refused:
        compiled(text)
    return [d for d in refused.value.diagnostics if isinstance(d, Diagnostic)]


def rejected(text: str) -> list[str]:
    """The codes of what is said of a text that is refused."""
    return [diagnostic.code for diagnostic in diagnostics(text)]
