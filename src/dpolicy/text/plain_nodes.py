"""Plain values of a Python caller → nodes, which shapes read like those of a file.

The source of each node is named by the path of its value, such as `release.mechanisms[0].unit`, so
that a diagnostic names the invalid value.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpolicy.text.decimals import format_decimal
from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    Report,
    ScalarNode,
    Source,
    Span,
    TextNode,
    number_node,
)


def node_from_plain(value: Any, path: str, report: Report) -> TextNode:
    """Return the node of a plain value: None, bool, text, `Fraction`, list or map with text keys.

    Keys are sorted, so that equal values give equal nodes. A number with too many digits is
    reported, as in a file. Raise `InvariantBroken` for a fraction without a finite decimal.
    """
    span = Span(Source(path, ""), 1, 1, 1, 1)
    if isinstance(value, Mapping):
        return MapNode(
            span,
            tuple(
                (ScalarNode(span, key, "text", '"'), node_from_plain(item, f"{path}.{key}", report))
                for key, item in sorted(value.items())
            ),
        )
    if isinstance(value, list):
        return ListNode(
            span,
            tuple(node_from_plain(item, f"{path}[{i}]", report) for i, item in enumerate(value)),
        )
    if isinstance(value, str):
        return ScalarNode(span, value, "text", '"')
    if isinstance(value, bool):
        return ScalarNode(span, "true" if value else "false", "bool")
    if isinstance(value, Fraction):
        return number_node(format_decimal(value), span, report)
    return ScalarNode(span, "null", "null")
