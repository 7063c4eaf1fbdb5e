"""Helpers that compile a policy text and return its warnings or errors."""

from __future__ import annotations

import pytest

from dpolicy.errors import PolicyRejected
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.yaml_reader import Source


def compile_text(text: str) -> CompiledPolicy:
    """Compile one policy text."""
    return compile_policy([Source("policy.yaml", text)])


def warning_codes(policy: CompiledPolicy) -> list[str]:
    """Return the codes of the warnings of a policy."""
    return [warning.code for warning in policy.warnings]


def diagnostics(text: str) -> list[Diagnostic]:
    """Return the diagnostics of a policy text that the compiler must reject."""
    with pytest.raises(PolicyRejected) as caught:
        compile_text(text)
    return [d for d in caught.value.diagnostics if isinstance(d, Diagnostic)]


def rejection_codes(text: str) -> list[str]:
    """Return the codes of the diagnostics of a policy text that the compiler must reject."""
    return [diagnostic.code for diagnostic in diagnostics(text)]
