"""A text → what the compiler says about it, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpolicy.errors import PolicyRejected
from dpolicy.policy.model import PolicySet
from dpolicy.policy.parser import parse_policies
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.diagnostics import Diagnostic, DiagnosticCollector, Severity
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source, TextNode, read_nodes

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "tests" / "cases" / "diagnostics"


def diagnostics(*texts: str) -> tuple[Diagnostic, ...]:
    """Everything that compiling these texts as one policy set reports."""
    named = [Source(f"{n}.yaml" if n else "policy.yaml", text) for n, text in enumerate(texts)]
    return diagnostics_of(named)


def diagnostics_of(sources: Sequence[Source]) -> tuple[Diagnostic, ...]:
    """Everything that compiling these sources as one policy set reports."""
    try:
        return compile_policy(sources).warnings
    except PolicyRejected as rejected:
        found = [d for d in rejected.diagnostics if isinstance(d, Diagnostic)]
        assert len(found) == len(rejected.diagnostics)
        assert any(d.severity is Severity.ERROR for d in found)
        return tuple(found)


def codes(*texts: str) -> list[str]:
    """The codes that are reported, in the order of their places."""
    return [d.code for d in diagnostics(*texts)]


def errors(*texts: str) -> list[str]:
    """The codes of the errors only."""
    return [d.code for d in diagnostics(*texts) if d.severity is Severity.ERROR]


def nodes(text: str) -> tuple[TextNode | None, list[str]]:
    """The node tree of a text, and the codes reported while it was read."""
    found = DiagnosticCollector()
    return read_nodes(Source("t.yaml", text), found.report), [
        d.code for d in found.sorted_diagnostics
    ]


def model(text: str) -> PolicySet:
    """The policy set of a text that has no mistakes of form."""
    found = DiagnosticCollector()
    policies = parse_policies([Source("t.yaml", text)], found)
    assert not found.errors, [str(d) for d in found.errors]
    assert policies is not None
    return policies


def of_bytes(content: bytes, directory: Path) -> tuple[Diagnostic, ...]:
    """What is reported about a file with exactly these bytes."""
    file = directory / "policy.yaml"
    file.write_bytes(content)
    return diagnostics_of([read_source(file)])
