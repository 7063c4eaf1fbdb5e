"""Case files (`*_test.yaml`): the steps of a case and the expected result of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import PolicyRejected
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import (
    INVALID,
    KeywordOrShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    TextShape,
)
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import (
    LocatedText,
    MapNode,
    Report,
    ScalarNode,
    Span,
    TextNode,
    read_nodes,
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected result of a step. A field that is None is not checked."""

    total: int | None = None
    kept: tuple[LocatedText, ...] | int | None = None
    pruned: dict[LocatedText, LocatedText] | None = None
    diagnostics: tuple[LocatedText, ...] | None = None
    allow: bool | None = None
    deny: tuple[LocatedText, ...] | None = None
    conflicts: tuple[LocatedText, ...] | None = None


@dataclass(frozen=True, slots=True)
class CaseStep:
    """Step of a case: an action on a policy file, a release or a release id."""

    action: str
    subject: LocatedText | Release | None
    expected: Expectation
    accept: tuple[LocatedText, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """Policy file and the steps to run with it, in order."""

    file: Path
    policy: LocatedText
    steps: tuple[CaseStep, ...]


@dataclass(frozen=True, slots=True)
class _PolicyPathShape:
    """Shape of an optional path; None is the policy of the case."""

    title: str = "a policy file, or nothing for the policy of the case"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null":
            return None
        return TextShape(self.title).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "null"]}


@dataclass(frozen=True, slots=True)
class _ReleaseShape:
    """Shape of a release, or of the path of a release file."""

    folder: Path
    title: str = "a release, or the path of a release file"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode):
            return release_from_node(node, report) or INVALID
        path = TextShape(self.title).read(node, report)
        if path is INVALID:
            return INVALID
        try:
            source = read_source(self.folder / path)
        except OSError as error:
            report("P051", f"cannot read `{path}`: {error.strerror}", node.span, None)
            return INVALID
        inner = read_nodes(source, report)
        return INVALID if inner is None else release_from_node(inner, report) or INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "object"]}


@dataclass(frozen=True, slots=True)
class _KeptRulesShape:
    """Shape of a list of rule names, or of their number."""

    title: str = "a list of rules or their number"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "number":
            return _COUNT.read(node, report)
        return ListShape(TextShape(), self.title).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [_COUNT.schema(), ListShape(TextShape()).schema()]}


_COUNT = NumberShape("a whole number", least=Fraction(0), whole=True)

_EXPECTED = KeywordOrShape(
    {"ok": Expectation(), "allow": Expectation(allow=True), "deny": Expectation(allow=False)},
    RecordShape(
        "`expect`",
        {
            "total": RecordField(_COUNT, "number of rules before pruning"),
            "kept": RecordField(_KeptRulesShape(), "all kept rules, or their number"),
            "pruned": RecordField(
                MapShape(TextShape(), key=TextShape()), "all pruned rules, each with its witness"
            ),
            "diagnostics": RecordField(ListShape(NameShape()), "all reported diagnostic codes"),
            "deny": RecordField(
                ListShape(TextShape()), "all rules that the denied release exceeds"
            ),
            "conflicts": RecordField(
                ListShape(TextShape()), "all rules that recorded releases exceed"
            ),
        },
        lambda v, _: Expectation(
            v["total"],
            v["kept"],
            v["pruned"],
            v["diagnostics"],
            None if v["deny"] is None else False,
            v["deny"],
            v["conflicts"],
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class _StepShape:
    """Shape of a step: one action, with optional `expect` and `accept`."""

    actions: dict[str, Shape]
    title: str = "a step"

    def read(self, node: TextNode, report: Report) -> Any:
        keys = [key.text for key, _ in node.entries] if isinstance(node, MapNode) else []
        actions = [key for key in keys if key in self.actions]
        if len(actions) != 1:
            names = ", ".join(f"`{name}`" for name in self.actions)
            report("P008", f"a step needs exactly one of {names}", node.span, None)
            return INVALID
        action = actions[0]
        fields = {
            action: RecordField(self.actions[action]),
            "expect": RecordField(_EXPECTED, default=Expectation()),
            "accept": RecordField(
                ListShape(TextShape()), "rules whose conflicts are accepted", default=()
            ),
        }
        return RecordShape(
            self.title,
            fields,
            lambda v, s: CaseStep(action, v[action], v["expect"], v["accept"], s),
        ).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def load_case(file: Path) -> Case:
    """Load a case file. Raise `PolicyRejected` with all errors of the file."""
    diagnostics = DiagnosticCollector()
    release, policy = _ReleaseShape(file.parent), TextShape("the path of a policy")
    actions: dict[str, Shape] = {
        "rules": _PolicyPathShape(),
        "check": _PolicyPathShape(),
        "apply": policy,
        "submit": release,
        "reserve": release,
        "import": release,
        "commit": TextShape("the id of a release"),
        "void": TextShape("the id of a release"),
    }
    shape = RecordShape(
        "a case",
        {
            "policy": RecordField(policy, required=True),
            "steps": RecordField(
                ListShape(_StepShape(actions), "a list of steps", least=1), required=True
            ),
        },
        lambda v, _: Case(file, v["policy"], v["steps"]),
    )
    node = read_nodes(read_source(file), diagnostics.report)
    case = INVALID if node is None else shape.read(node, diagnostics.report)
    if not isinstance(case, Case) or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    return case
