"""A `*_test.yaml` file → the steps to take and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpolicy.errors import PolicyRejected
from dpolicy.language.diagnostics import Findings
from dpolicy.language.parser import read_source
from dpolicy.language.shape import (
    INVALID,
    Field,
    ListOf,
    MapOf,
    Name,
    Number,
    Record,
    Text,
    WordOr,
)
from dpolicy.language.source import Map, Node, Report, Scalar, Span, Word, read_nodes


@dataclass(frozen=True, slots=True)
class Expected:
    """What a step should show; None where it does not matter."""

    total: int | None = None
    kept: tuple[Word, ...] | int | None = None
    pruned: dict[Word, Word] | None = None
    diagnostics: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: `rules` or `check`, on a policy of its own or on that of the case."""

    action: str
    policy: Word | None
    expected: Expected
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
    {"ok": Expected()},
    Record(
        "`expect`",
        {
            "total": Field(_COUNT, "rules before pruning"),
            "kept": Field(_Kept(), "exactly these rules are kept, or so many"),
            "pruned": Field(MapOf(Text(), key=Text()), "exactly these are, and what implies each"),
            "diagnostics": Field(ListOf(Name()), "exactly these codes are reported"),
        },
        lambda v, _: Expected(v["total"], v["kept"], v["pruned"], v["diagnostics"]),
    ),
)


@dataclass(frozen=True, slots=True)
class _StepShape:
    """A map with one action and, mostly, an `expect`."""

    title: str = "a step"

    def read(self, node: Node, report: Report) -> Any:
        actions = [key for key in ("rules", "check") if isinstance(node, Map) and _has(node, key)]
        later = [key for key in ("submit", "apply") if isinstance(node, Map) and _has(node, key)]
        if later:
            shown = f"`{later[0]}` needs a ledger, which this version does not have"
            report("P050", shown, node.span, "steps here are `rules` and `check`")
            return INVALID
        if len(actions) != 1:
            report("P008", "a step needs one of `rules` and `check`", node.span, None)
            return INVALID
        fields = {actions[0]: Field(_Optional()), "expect": Field(_EXPECTED, required=True)}
        return Record(
            self.title, fields, lambda v, span: Step(actions[0], v[actions[0]], v["expect"], span)
        ).read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def _has(node: Map, key: str) -> bool:
    return any(name.text == key for name, _ in node.entries)


def read_case(file: Path) -> Case:
    """The case of a file. Raises `PolicyRejected` with every mistake in it."""
    found = Findings()
    shape = Record(
        "a case",
        {
            "policy": Field(Text("the path of a policy"), required=True),
            "steps": Field(ListOf(_StepShape(), "a list of steps", least=1), required=True),
        },
        lambda v, _: Case(file, v["policy"], v["steps"]),
    )
    node = read_nodes(read_source(file), found)
    case = INVALID if node is None else shape.read(node, found)
    if not isinstance(case, Case) or found.errors:
        raise PolicyRejected(found.all)
    return case
