"""A `*_test.yaml` file → the steps to take, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import PolicyRejected
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import release_from_node
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
    """What a step should show; None where it does not matter."""

    total: int | None = None
    kept: tuple[LocatedText, ...] | int | None = None
    pruned: dict[LocatedText, LocatedText] | None = None
    diagnostics: tuple[LocatedText, ...] | None = None
    allow: bool | None = None
    deny: tuple[LocatedText, ...] | None = None
    conflicts: tuple[LocatedText, ...] | None = None


@dataclass(frozen=True, slots=True)
class CaseStep:
    """One thing to do, with a policy file, a release or an id, and what should come of it."""

    action: str
    subject: LocatedText | Release | None
    expected: Expectation
    accept: tuple[LocatedText, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """A policy and what should be true of it, in order."""

    file: Path
    policy: LocatedText
    steps: tuple[CaseStep, ...]


@dataclass(frozen=True, slots=True)
class _Optional:
    """A path, or nothing for the policy of the case."""

    title: str = "a policy file, or nothing for the policy of the case"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null":
            return None
        return TextShape(self.title).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "null"]}


@dataclass(frozen=True, slots=True)
class _ReleaseShape:
    """A release written out, or the path of one."""

    folder: Path
    title: str = "a release, or the path of one"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, ScalarNode):
            return release_from_node(node, report) or INVALID
        path = TextShape(self.title).read(node, report)
        if path is INVALID:
            return INVALID
        try:
            source = read_source(self.folder / path)
        except OSError as error:
            report("P051", f"`{path}` cannot be read: {error.strerror}", node.span, None)
            return INVALID
        inner = read_nodes(source, report)
        return INVALID if inner is None else release_from_node(inner, report) or INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "object"]}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The names of rules, or their number."""

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
            "total": RecordField(_COUNT, "rules before pruning"),
            "kept": RecordField(_Kept(), "exactly these rules are kept, or so many"),
            "pruned": RecordField(
                MapShape(TextShape(), key=TextShape()), "exactly these are, and what implies each"
            ),
            "diagnostics": RecordField(ListShape(NameShape()), "exactly these codes are reported"),
            "deny": RecordField(
                ListShape(TextShape()), "denied, and exactly these rules are broken"
            ),
            "conflicts": RecordField(
                ListShape(TextShape()), "exactly these rules conflict with the past"
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
    """A map with one action and, mostly, an `expect`."""

    actions: dict[str, Shape]
    title: str = "a step"

    def read(self, node: TextNode, report: Report) -> Any:
        keys = [key.text for key, _ in node.entries] if isinstance(node, MapNode) else []
        actions = [key for key in keys if key in self.actions]
        if len(actions) != 1:
            known = ", ".join(f"`{name}`" for name in self.actions)
            report("P008", f"a step needs exactly one of {known}", node.span, None)
            return INVALID
        action = actions[0]
        fields = {
            action: RecordField(self.actions[action]),
            "expect": RecordField(_EXPECTED, default=Expectation()),
            "accept": RecordField(ListShape(TextShape()), "conflicts to accept", default=()),
        }
        return RecordShape(
            self.title,
            fields,
            lambda v, s: CaseStep(action, v[action], v["expect"], v["accept"], s),
        ).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def load_case(file: Path) -> Case:
    """The case of a file. Raises `PolicyRejected` with every mistake in it."""
    found = DiagnosticCollector()
    release, policy = _ReleaseShape(file.parent), TextShape("the path of a policy")
    actions: dict[str, Shape] = {
        "rules": _Optional(),
        "check": _Optional(),
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
    node = read_nodes(read_source(file), found.report)
    case = INVALID if node is None else shape.read(node, found.report)
    if not isinstance(case, Case) or found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    return case
