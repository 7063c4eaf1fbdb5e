"""Shapes that a map chooses by itself: by which key it holds, or by the value of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpolicy.text.did_you_mean import closest_name, suggest
from dpolicy.text.shapes import INVALID, ChoiceShape, Shape, first_line_span, report_wrong_type
from dpolicy.text.yaml_reader import MapNode, Report, ScalarNode, TextNode


@dataclass(frozen=True, slots=True)
class KeyedUnionShape:
    """A map whose shape follows from the one key of `tags` that it holds, or a bare word."""

    title: str
    tags: Mapping[str, Shape]
    words: Mapping[str, Any] = field(default_factory=dict)

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.text in self.words:
            return self.words[node.text]
        if isinstance(node, ScalarNode) and node.kind == "text" and self.words:
            known = (*self.words, *self.tags)
            report(
                "P012",
                f"`{node.text[:40]}` is not {self.title}",
                node.span,
                suggest(node.text, known),
            )
            return INVALID
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        present = [key.text for key, _ in node.entries if key.text in self.tags]
        if len(present) == 1:
            return self.tags[present[0]].read(node, report)
        choice = ", ".join(f"`{tag}`" for tag in self.tags)
        said = "none of them" if not present else " and ".join(f"`{tag}`" for tag in present)
        close = next(
            (c for key, _ in node.entries if (c := closest_name(key.text, self.tags))), None
        )
        help_ = f"did you mean `{close}`?" if close and not present else None
        shown = f"{self.title} needs exactly one of {choice}; found {said}"
        report("P008", shown, node.span, help_)
        return INVALID

    def schema(self) -> dict[str, Any]:
        shapes: Sequence[dict[str, Any]] = [shape.schema() for shape in self.tags.values()]
        words = [{"enum": list(self.words)}] if self.words else []
        return {"anyOf": [*words, *shapes]}


@dataclass(frozen=True, slots=True)
class TaggedUnionShape:
    """A map whose shape follows from the value of one of its keys, such as `kind`."""

    title: str
    tag: str
    shapes: Mapping[str, Shape]

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        tag = node.get(self.tag)
        if tag is None:
            report("P008", f"{self.title} needs `{self.tag}`", first_line_span(node), self._known())
            return INVALID
        chosen = ChoiceShape(tuple(self.shapes), f"a known {self.tag}").read(tag, report)
        return INVALID if chosen is INVALID else self.shapes[chosen].read(node, report)

    def _known(self) -> str:
        return "one of " + ", ".join(f"`{name}`" for name in self.shapes)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self._tagged(name, shape) for name, shape in self.shapes.items()]}

    def _tagged(self, name: str, shape: Shape) -> dict[str, Any]:
        """The schema of one shape, which only its own tag chooses."""
        described = shape.schema()
        return {**described, "properties": {**described["properties"], self.tag: {"const": name}}}
