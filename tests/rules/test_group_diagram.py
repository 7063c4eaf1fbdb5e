"""The diagram of groups has every rule in one box, and exactly the order of the groups."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import permutations

import pytest
from tests.rules.hospital import compile_hospital
from tests.rules.test_hasse import POLICIES, compile_section, leq, reachable

from dpolicy.errors import InvalidValue
from dpolicy.rules.compiler import CompiledSection, compile_policy
from dpolicy.rules.hasse.diagram import select_rules
from dpolicy.rules.hasse.group_diagram import (
    MAX_BASES,
    DiagramGroup,
    group_nodes,
    groups_svg,
    rule_groups,
)
from dpolicy.text.yaml_reader import Source


@pytest.fixture(params=[*POLICIES, "hospital"], scope="module")
def section(request: pytest.FixtureRequest) -> CompiledSection:
    """Return each of the sample sections in turn."""
    if request.param == "hospital":
        return compile_hospital().cumulative
    return compile_section(POLICIES[request.param])


def group_rule_numbers(section: CompiledSection, group: DiagramGroup) -> list[int]:
    """Return the numbers of all rules of a group."""
    width = section.rules.width
    return [base * width + place for base in group.bases for place in range(width)]


def is_below(section: CompiledSection, a: DiagramGroup, b: DiagramGroup) -> bool:
    """Return whether each rule of `a` is inside a rule of `b`, by definition."""
    wider = group_rule_numbers(section, b)
    return all(
        any(leq(section, rule, other) for other in wider) for rule in group_rule_numbers(section, a)
    )


def test_every_rule_is_in_one_group(section: CompiledSection) -> None:
    groups = rule_groups(section, select_rules(section, None, None))
    numbers = [number for group in groups for number in group_rule_numbers(section, group)]
    assert sorted(numbers) == list(range(len(section.rules)))
    assert sum(group.total for group in groups) == len(section.rules)
    assert sum(group.kept for group in groups) == int(section.pruning.kept.sum())
    for group in groups:
        rules = [section.rules[number] for number in group_rule_numbers(section, group)]
        assert len({(r.base.policy, r.base.risk, r.base.level, r.unit) for r in rules}) == 1
        assert group.total == len(rules)
        assert group.kept == sum(bool(section.pruning.kept[rule.number]) for rule in rules)


def test_edges_generate_exactly_the_order_of_the_groups(section: CompiledSection) -> None:
    groups = rule_groups(section, select_rules(section, None, None))
    nodes, edges = group_nodes(section, groups)
    assert sorted(group for node in nodes for group in node) == list(range(len(groups)))
    node_of = {group: number for number, node in enumerate(nodes) for group in node}
    above = [reachable(edges, number) for number in range(len(nodes))]
    for a, b in permutations(range(len(groups)), 2):
        assert (node_of[b] in above[node_of[a]]) == is_below(section, groups[a], groups[b])
    for edge in edges:
        rest = [other for other in edges if other != edge]
        assert edge[1] not in reachable(rest, edge[0])


def test_the_diagram_of_a_hospital_fits_one_screen() -> None:
    section = compile_hospital().cumulative
    drawing = ElementTree.fromstring(groups_svg(section, select_rules(section, None, None)))
    assert int(drawing.attrib["width"]) <= 1_600
    assert int(drawing.attrib["height"]) <= 1_000
    text = "\n".join(drawing.itertext())
    assert "Cumulative rules in 15 groups: 268 kept, 80 pruned" in text
    assert "per-attribute, high: patient, 12 attributes, ε 1 to 3, δ 1e-08, 48 of 48 rules" in text
    assert "everything: patient, ε 6 to 18, δ 1e-08, 4 of 4 rules kept" in text


def test_budgets_that_do_not_compare_are_counted() -> None:
    policies = """
  - {name: p, kind: attribute, unit: user, budgets: {low: {epsilon: 3}, high: {epsilon: 1}},
     except: {views: {rho: 1}}}
"""
    section = compile_section(policies)
    assert "p, low: user, 2 attributes, 2 budgets, 2 of 2 rules kept" in groups_svg(
        section, range(3)
    )


def test_too_many_scopes_are_rejected() -> None:
    attributes = "".join(f"    a{n}: {{risk: low}}\n" for n in range(MAX_BASES + 1))
    text = f"""\
dpolicy: 1
accounting: {{delta: 1e-7}}
schema:
  attributes:
{attributes}policies:
  - {{name: p, kind: attribute, unit: user, budgets: {{low: {{epsilon: 1}}}}}}
"""
    section = compile_policy([Source("policy.yaml", text)]).cumulative
    with pytest.raises(InvalidValue, match="1 groups with 5001 scopes are too many to draw"):
        groups_svg(section, range(len(section.rules)))
