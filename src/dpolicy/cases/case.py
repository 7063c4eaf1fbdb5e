"""A `*_test.yaml` file → the steps to take, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import PolicyRejected
from dpolicy.language.diagnostics import Findings
from dpolicy.language.parser import read_source
from dpolicy.language.release import release_from
from dpolicy.language.shape import (
    INVALID,
    Field,
    ListOf,
    MapOf,
    Name,
    Number,
    Record,
    Shape,
    Text,
    WordOr,
)
from dpolicy.language.source import Map, Node, Report, Scalar, Span, Word, read_nodes
from dpolicy.releases.request import Release


@dataclass(frozen=True, slots=True)
class Expected:
    """What a step should show; None where it does not matter."""

    total: int | None = None
    kept: tuple[Word, ...] | int | None = None
    pruned: dict[Word, Word] | None = None
    diagnostics: tuple[Word, ...] | None = None
    allow: bool | None = None
    deny: tuple[Word, ...] | None = None
    conflicts: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, with a policy file, a release or an id, and what should come of it."""

    action: str
    subject: Word | Release | None
    expected: Expected
    accept: tuple[Word, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """A policy and what should be true of it, in order."""

    file: Path
    policy: Word
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Optional:
    """A path, or nothing for the policy of the case."""

    title: str = "a policy file, or nothing for the policy of the case"

    def read(self, node: Node, report: Report) -> Any:
        if isinstance(node, Scalar) and node.kind == "null":
            return None
        return Text(self.title).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "null"]}


@dataclass(frozen=True, slots=True)
class _ReleaseShape:
    """A release written out, or the path of one."""

    folder: Path
    title: str = "a release, or the path of one"

    def read(self, node: Node, report: Report) -> Any:
        if not isinstance(node, Scalar):
            return release_from(node, report) or INVALID
        path = Text(self.title).read(node, report)
        if path is INVALID:
            return INVALID
        try:
            source = read_source(self.folder / path)
        except OSError as error:
            report("P051", f"`{path}` cannot be read: {error.strerror}", node.span, None)
            return INVALID
        inner = read_nodes(source, report)
        return INVALID if inner is None else release_from(inner, report) or INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "object"]}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The names of rules, or their number."""

    title: str = "a list of rules or their number"

    def read(self, node: Node, report: Report) -> Any:
        if isinstance(node, Scalar) and node.kind == "number":
            return _COUNT.read(node, report)
        return ListOf(Text(), self.title).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [_COUNT.schema(), ListOf(Text()).schema()]}


_COUNT = Number("a whole number", least=Fraction(0), whole=True)

_EXPECTED = WordOr(
    {"ok": Expected(), "allow": Expected(allow=True), "deny": Expected(allow=False)},
    Record(
        "`expect`",
        {
            "total": Field(_COUNT, "rules before pruning"),
            "kept": Field(_Kept(), "exactly these rules are kept, or so many"),
            "pruned": Field(MapOf(Text(), key=Text()), "exactly these are, and what implies each"),
            "diagnostics": Field(ListOf(Name()), "exactly these codes are reported"),
            "deny": Field(ListOf(Text()), "denied, and exactly these rules are broken"),
            "conflicts": Field(ListOf(Text()), "exactly these rules conflict with the past"),
        },
        lambda v, _: Expected(
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

    def read(self, node: Node, report: Report) -> Any:
        keys = [key.text for key, _ in node.entries] if isinstance(node, Map) else []
        actions = [key for key in keys if key in self.actions]
        if len(actions) != 1:
            known = ", ".join(f"`{name}`" for name in self.actions)
            report("P008", f"a step needs exactly one of {known}", node.span, None)
            return INVALID
        action = actions[0]
        fields = {
            action: Field(self.actions[action]),
            "expect": Field(_EXPECTED, default=Expected()),
            "accept": Field(ListOf(Text()), "conflicts to accept", default=()),
        }
        return Record(
            self.title, fields, lambda v, s: Step(action, v[action], v["expect"], v["accept"], s)
        ).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def read_case(file: Path) -> Case:
    """The case of a file. Raises `PolicyRejected` with every mistake in it."""
    found = Findings()
    release, policy = _ReleaseShape(file.parent), Text("the path of a policy")
    actions: dict[str, Shape] = {
        "rules": _Optional(),
        "check": _Optional(),
        "apply": policy,
        "submit": release,
        "reserve": release,
        "import": release,
        "commit": Text("the id of a release"),
        "void": Text("the id of a release"),
    }
    shape = Record(
        "a case",
        {
            "policy": Field(policy, required=True),
            "steps": Field(ListOf(_StepShape(actions), "a list of steps", least=1), required=True),
        },
        lambda v, _: Case(file, v["policy"], v["steps"]),
    )
    node = read_nodes(read_source(file), found)
    case = INVALID if node is None else shape.read(node, found)
    if not isinstance(case, Case) or found.errors:
        raise PolicyRejected(found.all)
    return case
