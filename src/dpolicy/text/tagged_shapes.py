"""Union shapes: a key of a map, or the value of its tag, selects the shape of the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpolicy.text.did_you_mean import suggest, suggest_closest
from dpolicy.text.shapes import INVALID, ChoiceShape, Shape, first_line_span, report_wrong_type
from dpolicy.text.yaml_reader import MapNode, Report, ScalarNode, TextNode


@dataclass(frozen=True, slots=True)
class KeyedUnionShape:
    """Union in which the one key of `tags` that a map has selects its shape; or a keyword."""

    title: str
    tags: Mapping[str, Shape]
    words: Mapping[str, Any] = field(default_factory=dict)

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.text in self.words:
            return self.words[node.text]
        if isinstance(node, ScalarNode) and node.kind == "text" and self.words:
            message = f"`{node.text[:40]}` is not {self.title}"
            report("P012", message, node.span, suggest(node.text, (*self.words, *self.tags)))
            return INVALID
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        present = [key.text for key, _ in node.entries if key.text in self.tags]
        if len(present) == 1:
            return self.tags[present[0]].read(node, report)
        choices = ", ".join(f"`{tag}`" for tag in self.tags)
        actual = " and ".join(f"`{tag}`" for tag in present) or "none of them"
        hints = [suggest_closest(key.text, self.tags) for key, _ in node.entries]
        help_ = next((hint for hint in hints if hint and not present), None)
        message = f"{self.title} needs exactly one of {choices}; got {actual}"
        report("P008", message, node.span, help_)
        return INVALID

    def schema(self) -> dict[str, Any]:
        shapes: Sequence[dict[str, Any]] = [shape.schema() for shape in self.tags.values()]
        words = [{"enum": list(self.words)}] if self.words else []
        return {"anyOf": [*words, *shapes]}


@dataclass(frozen=True, slots=True)
class TaggedUnionShape:
    """Union in which the value of one key, such as `kind`, selects the shape of a map."""

    title: str
    tag: str
    shapes: Mapping[str, Shape]

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        tag = node.get(self.tag)
        if tag is None:
            message = f"{self.title} needs `{self.tag}`"
            help_ = "use one of " + ", ".join(f"`{name}`" for name in self.shapes)
            report("P008", message, first_line_span(node), help_)
            return INVALID
        chosen = ChoiceShape(tuple(self.shapes), f"a known {self.tag}").read(tag, report)
        return INVALID if chosen is INVALID else self.shapes[chosen].read(node, report)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self._schema_with_tag(name, s) for name, s in self.shapes.items()]}

    def _schema_with_tag(self, name: str, shape: Shape) -> dict[str, Any]:
        """Return the schema of a shape, with its tag as the only allowed value of the key."""
        schema = shape.schema()
        return {**schema, "properties": {**schema["properties"], self.tag: {"const": name}}}
