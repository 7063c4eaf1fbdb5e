"""Grammar of `tuned-for`: typical mechanisms, each with its weight in the mix."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import TypicalMechanism
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS, parse_mechanism
from dpolicy.releases.release_format import node_to_plain
from dpolicy.text.shapes import INVALID, ListShape, NumberShape, report_wrong_type
from dpolicy.text.yaml_reader import MapNode, Report, TextNode

#: Largest number of typical mechanisms.
MAX_TYPICAL = 32

_WEIGHT = NumberShape("a weight above 0 and at most 10⁹", above=Fraction(0), most=Fraction(10**9))


@dataclass(frozen=True, slots=True)
class _TypicalShape:
    """Shape of one typical mechanism: a kind, its parameters, and optionally a `weight`."""

    title: str = "a mechanism such as {kind: gaussian, sigma: 10, weight: 2}"

    def read(self, node: TextNode, report: Report) -> Any:
        if not isinstance(node, MapNode):
            return report_wrong_type(node, self.title, report)
        stated = node.get("weight")
        weight = Fraction(1) if stated is None else _WEIGHT.read(stated, report)
        plain = node_to_plain(node)
        parameters = {key: value for key, value in plain.items() if key != "weight"}
        mechanism, problems = parse_mechanism(parameters)
        for problem in problems:
            message, _, help_ = problem.message.partition("; help: ")
            report("P048", message, node.span, help_ or "write it as in a release")
        if mechanism is None or weight is INVALID:
            return INVALID
        return TypicalMechanism(parameters, weight, mechanism)

    def schema(self) -> dict[str, Any]:
        kinds = {"enum": sorted(MECHANISM_KINDS)}
        properties = {"kind": kinds, "weight": _WEIGHT.schema()}
        return {"type": "object", "properties": properties, "required": ["kind"]}


TUNED_FOR = ListShape(_TypicalShape(), "a list of mechanisms", least=1, most=MAX_TYPICAL)
