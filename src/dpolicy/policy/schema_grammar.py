"""Grammar of the `schema` section: levels, categories, attributes, labels and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import Attribute, Category, LabelStatement, Partition
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.text.shapes import (
    INVALID,
    BooleanShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    report_wrong_type,
)
from dpolicy.text.tagged_shapes import KeyedUnionShape
from dpolicy.text.yaml_reader import (
    LocatedText,
    MapNode,
    Report,
    ScalarNode,
    Source,
    Span,
    TextNode,
)

#: Maximum number of values of a label or partition. More values are rather free text.
MAX_VALUES = 20_000
#: Maximum number of risk levels and of membership levels.
MAX_LEVELS = 100

#: Replaces a name whose error was reported. The checker never looks it up.
ALREADY_REPORTED = LocatedText("", Span(Source("", ""), 1, 1, 1, 1))

_CATEGORIES = ListShape(NameShape(), "a list of categories")
_LEVELS = ListShape(NameShape(), least=1, most=MAX_LEVELS)
_VALUES = ListShape(NameShape(), least=1, most=MAX_VALUES)


@dataclass(frozen=True, slots=True)
class _AttributeShape:
    """Shape of an attribute: `risk`, and a list of categories for each membership level.

    The policy set names its membership levels, so the checker verifies these keys.
    """

    title: str = "an attribute"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and node.kind == "null":
            return Attribute()
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        risk, memberships = None, {}
        for key, child in node.entries:
            if key.text == "risk":
                level = NameShape().read(child, report)
                risk = ALREADY_REPORTED if level is INVALID else level
            else:
                categories = _CATEGORIES.read(child, report)
                memberships[key.located_text] = () if categories is INVALID else categories
        return Attribute(risk, memberships)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"risk": NameShape().schema()},
            "additionalProperties": _CATEGORIES.schema(),
        }


ATTRIBUTE = _AttributeShape()

CATEGORY = RecordShape(
    "a category",
    {"risk": RecordField(NameShape(), "risk level of the category")},
    lambda v, _: Category(v["risk"]),
    {"risk": lambda span: LocatedText("", span)},
)

LABEL = RecordShape(
    "a label",
    {
        "values": RecordField(_VALUES, "allowed values"),
        "text": RecordField(BooleanShape(), "whether any text is allowed", default=False),
        "many": RecordField(
            BooleanShape(), "whether a mechanism can have several values", default=False
        ),
        "default": RecordField(NameShape(), "value of a mechanism that states none"),
        "required": RecordField(
            BooleanShape(), "whether a release must state the label", default=False
        ),
    },
    lambda v, _: LabelStatement(v["values"], v["text"], v["many"], v["default"], v["required"]),
    {key: lambda _: False for key in ("many", "required")}
    | {"values": lambda _: (), "default": lambda _: None},
)

_WHOLE_NUMBER = NumberShape(
    "a whole number",
    least=Fraction(-MAX_PARTITION_VALUES),
    most=Fraction(MAX_PARTITION_VALUES),
    whole=True,
)
_OWNER_FIELDS = {
    "stable": RecordField(BooleanShape(), "whether a unit never changes its value", default=True),
    "of": RecordField(NameShape(), "unit of which each member has one value"),
}

PARTITION = KeyedUnionShape(
    "a partition",
    {
        "values": RecordShape(
            "a partition by values",
            {"values": RecordField(_VALUES, required=True), **_OWNER_FIELDS},
            lambda v, _: Partition(values=v["values"], stable=v["stable"], of=v["of"]),
        ),
        "from": RecordShape(
            "a partition by range",
            {
                "from": RecordField(_WHOLE_NUMBER, required=True),
                "to": RecordField(_WHOLE_NUMBER, required=True),
                **_OWNER_FIELDS,
            },
            lambda v, _: Partition(None, v["from"], v["to"], v["stable"], v["of"]),
        ),
    },
)

SCHEMA = RecordShape(
    "`schema`",
    {
        "risk-levels": RecordField(_LEVELS, "risk levels, lowest first"),
        "membership-levels": RecordField(_LEVELS, "membership levels, closest first"),
        "categories": RecordField(
            MapShape(CATEGORY, fallback=Category(ALREADY_REPORTED)),
            "groups of attributes",
            default={},
        ),
        "attributes": RecordField(
            MapShape(ATTRIBUTE, fallback=Attribute(ALREADY_REPORTED)),
            "columns of the data",
            default={},
        ),
        "labels": RecordField(
            MapShape(LABEL, fallback=LabelStatement(())), "labels of mechanisms", default={}
        ),
        "partitions": RecordField(
            MapShape(PARTITION, fallback=Partition()),
            "dimensions that split units into blocks",
            default={},
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("risk-levels", "membership-levels")}
    | {key: lambda _: {} for key in ("categories", "attributes", "labels", "partitions")},
)
