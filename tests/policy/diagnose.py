"""Helpers that read or compile policy texts and return their diagnostics."""

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


def diagnose(*texts: str) -> tuple[Diagnostic, ...]:
    """Compile texts as one policy set and return all diagnostics."""
    sources = [Source(f"{n}.yaml" if n else "policy.yaml", text) for n, text in enumerate(texts)]
    return diagnose_sources(sources)


def diagnose_sources(sources: Sequence[Source]) -> tuple[Diagnostic, ...]:
    """Compile sources as one policy set and return all diagnostics."""
    try:
        return compile_policy(sources).warnings
    except PolicyRejected as rejected:
        diagnostics = [d for d in rejected.diagnostics if isinstance(d, Diagnostic)]
        assert len(diagnostics) == len(rejected.diagnostics)
        assert any(d.severity is Severity.ERROR for d in diagnostics)
        return tuple(diagnostics)


def diagnose_bytes(content: bytes, directory: Path) -> tuple[Diagnostic, ...]:
    """Compile a file with exactly these bytes and return all diagnostics."""
    file = directory / "policy.yaml"
    file.write_bytes(content)
    return diagnose_sources([read_source(file)])


def diagnostic_codes(*texts: str) -> list[str]:
    """Return the codes of all diagnostics, in the order of their positions."""
    return [d.code for d in diagnose(*texts)]


def error_codes(*texts: str) -> list[str]:
    """Return the codes of all errors, in the order of their positions."""
    return [d.code for d in diagnose(*texts) if d.severity is Severity.ERROR]


def read_text(text: str) -> tuple[TextNode | None, list[str]]:
    """Return the node tree of a text and the codes that the reader reported."""
    diagnostics = DiagnosticCollector()
    root = read_nodes(Source("t.yaml", text), diagnostics.report)
    return root, [d.code for d in diagnostics.sorted_diagnostics]


def parse_valid(text: str) -> PolicySet:
    """Parse a text without syntax errors into a policy set."""
    diagnostics = DiagnosticCollector()
    policies = parse_policies([Source("t.yaml", text)], diagnostics)
    assert not diagnostics.errors, [str(d) for d in diagnostics.errors]
    assert policies is not None
    return policies
