"""The Hasse diagram contains exactly the order of the rules, and the drawing contains all of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection
from itertools import combinations, pairwise

import pytest

from dpolicy.errors import InvalidValue
from dpolicy.rules.compiler import CompiledSection, compile_policy
from dpolicy.rules.hasse.diagram import (
    MAX_NODES,
    diagram_nodes,
    hasse_edges,
    hasse_svg,
    implication_edges,
    select_rules,
)
from dpolicy.rules.hasse.layered_layout import BoxSize, DiagramLayout, lay_out
from dpolicy.rules.hasse.svg import MAX_TEXT, RuleBox, draw_svg, text_width, wrap_text
from dpolicy.text.yaml_reader import Source

SVG = "{http://www.w3.org/2000/svg}"

HEAD = """
dpolicy: 1
name: sample
accounting: {delta: 1e-7, relation: change}
units: {user: {}, user-month: {period: month}}
schema:
  risk-levels: [low, high]
  membership-levels: [member, weak]
  categories: {health: {risk: high}, place: {risk: low}}
  attributes:
    diagnosis: {risk: high, member: [health]}
    zip: {risk: low, member: [place], weak: [health]}
    views: {risk: low}
  labels:
    team: {values: [a, b, c, d, e], required: true}
policies:
"""


def custom(name: str, when: str, epsilon: float, unit: str = "user") -> str:
    """Return one custom policy as a line of text."""
    return (
        f"  - {{name: {name}, kind: custom, when: '{when}', unit: {unit}, "
        f"budget: {{epsilon: {epsilon}}}}}\n"
    )


def in_teams(*teams: str) -> str:
    """Return a predicate on the label `team`."""
    quoted = ", ".join(f'"{team}"' for team in teams)
    return f"labels.team in [{quoted}]"


#: The figure of the paper: rules 2, 3, 5 and 7 are pruned.
PAPER = (
    custom("phi-1", "always", 7)
    + custom("phi-2", in_teams("a", "b"), 7)
    + custom("phi-3", in_teams("b", "c"), 7)
    + custom("phi-4", in_teams("d", "e"), 5)
    + custom("phi-5", in_teams("a"), 7)
    + custom("phi-6", in_teams("b"), 3)
    + custom("phi-7", in_teams("d"), 5)
)
#: Two pairs of equivalent predicates, one with the tighter budget first and one with it last.
EQUIVALENT = (
    custom("first", in_teams("a", "b"), 1)
    + custom("again", 'labels.team == "a" || labels.team == "b"', 2)
    + custom("loose", in_teams("c", "d"), 4)
    + custom("tight", 'labels.team == "d" || labels.team == "c"', 3)
    + custom("inside", in_teams("a"), 2)
    + custom("top", "always", 9)
)
SETTINGS = """
  - name: deployment
    kind: extension
    settings:
      - {name: some, when: 'labels.team == "a"', budget: same}
      - {name: more, when: 'labels.team in ["a", "b"]', budget: {times: 1.5}}
      - {name: same-as-more, when: 'labels.team == "b" || labels.team == "a"', budget: {times: 2}}
      - {name: any, when: always, budget: {times: 2}}
"""
PRODUCT = (
    custom("global", "always", 8)
    + """
  - {name: attribute, kind: attribute, units: [user, user-month],
     budgets: {low: {epsilon: 3}, high: {epsilon: 1}}}
  - {name: category, kind: category, unit: user, levels: {weak: {times: 2}},
     budgets: {low: {epsilon: 2}, high: {epsilon: 3}}}
"""
    + SETTINGS
)
POLICIES = {"paper": PAPER, "equivalent": EQUIVALENT, "product": PRODUCT}


def compile_section(policies: str) -> CompiledSection:
    """Compile the cumulative rules."""
    return compile_policy([Source("sample.yaml", HEAD + policies)]).cumulative


@pytest.fixture(params=POLICIES, scope="module")
def section(request: pytest.FixtureRequest) -> CompiledSection:
    """Return each of the sample sections in turn."""
    return compile_section(POLICIES[request.param])


def leq(section: CompiledSection, a: int, b: int) -> bool:
    """Return whether rule `a` is below rule `b`, by definition."""
    orders = section.factor_orders
    (base_a, rest_a), (base_b, rest_b) = (divmod(n, section.rules.width) for n in (a, b))
    below = orders.scopes.leq(orders.scope_of_base[base_a], orders.scope_of_base[base_b])
    below = below and orders.units.leq(orders.unit_of_base[base_a], orders.unit_of_base[base_b])
    for axis, order in zip(reversed(section.rules.axes), reversed(orders.settings), strict=True):
        rest_a, place_a = divmod(rest_a, len(axis))
        rest_b, place_b = divmod(rest_b, len(axis))
        below = below and order.leq(place_a, place_b)
    return below


def reachable(edges: Collection[tuple[int, int]], start: int) -> set[int]:
    """Return the nodes that edges lead to from `start`, including `start`."""
    visited = {start}
    queue = [start]
    for node in queue:
        unvisited = [b for a, b in edges if a == node and b not in visited]
        visited.update(unvisited)
        queue += unvisited
    return visited


def selections(section: CompiledSection) -> list[list[int]]:
    """Return all rules, every third rule, and the rules of one base policy."""
    numbers = select_rules(section, None, None)
    return [numbers, numbers[::3], select_rules(section, "user", section.rules.bases[1].policy)]


def test_nodes_are_the_rules_of_equal_scope_and_unit(section: CompiledSection) -> None:
    for numbers in selections(section):
        nodes = diagram_nodes(section, numbers)
        assert sorted(number for node in nodes for number in node) == sorted(numbers)
        node_of = {number: node for node in nodes for number in node}
        for a, b in combinations(numbers, 2):
            equal = leq(section, a, b) and leq(section, b, a)
            assert equal == (node_of[a] == node_of[b])


def test_edges_generate_exactly_the_order(section: CompiledSection) -> None:
    for numbers in selections(section):
        edges = hasse_edges(section, numbers)
        firsts = [node[0] for node in diagram_nodes(section, numbers)]
        for a in firsts:
            assert reachable(edges, a) == {b for b in firsts if leq(section, a, b)}


def test_no_edge_follows_from_other_edges(section: CompiledSection) -> None:
    edges = hasse_edges(section, select_rules(section, None, None))
    assert len(set(edges)) == len(edges)
    for a, b in edges:
        assert b not in reachable([edge for edge in edges if edge != (a, b)], a)


def test_the_samples_contain_equal_scopes_and_several_units() -> None:
    equivalent = compile_section(EQUIVALENT)
    assert diagram_nodes(equivalent, range(6)) == [(0, 1), (2, 3), (4,), (5,)]
    assert hasse_edges(equivalent, range(6)) == [(0, 5), (2, 5), (4, 0)]
    product = compile_section(PRODUCT)
    edges = hasse_edges(product, select_rules(product, None, None))
    assert any(product.rules[a].unit != product.rules[b].unit for a, b in edges)


def test_the_diagram_equals_the_figure_of_the_paper() -> None:
    section = compile_section(PAPER)
    assert [n + 1 for n in range(7) if not section.pruning.kept[n]] == [2, 3, 5, 7]
    edges = {(a + 1, b + 1) for a, b in hasse_edges(section, range(7))}
    assert edges == {(2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (6, 3), (7, 4)}
    bold = {(a + 1, b + 1) for a, b in implication_edges(section, range(7))}
    assert bold == {(2, 1), (3, 1), (5, 2), (7, 4)}


def test_the_bold_path_leads_from_each_pruned_rule_to_its_witness(section: CompiledSection) -> None:
    numbers = select_rules(section, None, None)
    bold = implication_edges(section, numbers)
    assert bold <= set(hasse_edges(section, numbers))
    first = {number: node[0] for node in diagram_nodes(section, numbers) for number in node}
    for number in numbers:
        assert first[int(section.pruning.implied_by[number])] in reachable(bold, first[number])


def test_select_by_unit_and_policy() -> None:
    section = compile_section(PRODUCT)
    assert select_rules(section, None, None) == list(range(len(section.rules)))
    for unit, policy in (("user", None), (None, "attribute"), ("user-month", "attribute")):
        expected = [
            rule.number
            for rule in section.rules
            if unit in (None, rule.unit) and policy in (None, rule.base.policy)
        ]
        assert expected
        assert select_rules(section, unit, policy) == expected
    assert select_rules(section, "household", None) == []


def draw(section: CompiledSection, numbers: Collection[int]) -> ElementTree.Element:
    """Draw the rules and parse the SVG."""
    return ElementTree.fromstring(hasse_svg(section, numbers))


def box_texts(svg: ElementTree.Element, kind: str) -> dict[str, str]:
    """Return the text of each box of a kind without spaces, by tooltip."""
    texts = {}
    for group in svg.iter(f"{SVG}g"):
        if group.get("class") == f"rule {kind}":
            content = "".join("".join(text.itertext()) for text in group.iter(f"{SVG}text"))
            texts[group.findtext(f"{SVG}title", "")] = content.replace(" ", "")
    return texts


def test_every_rule_has_a_box_that_shows_whether_it_is_pruned(section: CompiledSection) -> None:
    numbers = select_rules(section, None, None)
    svg = draw(section, numbers)
    kept, pruned = box_texts(svg, "kept"), box_texts(svg, "pruned")
    assert len(kept) == int(section.pruning.kept.sum())
    assert len(kept) + len(pruned) == len(numbers)
    for rule in section.rules:
        witness = section.implied_by(rule)
        boxes = kept if witness is None else pruned
        start = f"{rule.name}: {rule.unit},"
        (content,) = (content for tip, content in boxes.items() if tip.startswith(start))
        assert content.startswith(rule.name.replace(" ", ""))
        if witness is not None:
            assert f"impliedby{witness.name}".replace(" ", "") in content


def test_boxes_of_rules_do_not_overlap(section: CompiledSection) -> None:
    for numbers in selections(section):
        groups = draw(section, numbers).iter(f"{SVG}g")
        rules = [group for group in groups if (group.get("class") or "").startswith("rule ")]
        boxes = []
        for rect in (rect for group in rules for rect in group.iter(f"{SVG}rect")):
            x, y, width, height = (float(rect.get(k, "")) for k in ("x", "y", "width", "height"))
            boxes.append((x, y, x + width, y + height))
        assert len(boxes) == len(numbers)
        for a, b in combinations(boxes, 2):
            assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def test_a_witness_outside_the_drawing_is_marked_as_not_drawn() -> None:
    section = compile_section(PAPER)
    (box,) = box_texts(draw(section, [1]), "pruned").values()
    assert box.endswith("impliedbyphi-1(notdrawn)")
    assert implication_edges(section, [1]) == set()


def test_the_drawing_is_self_contained_and_accessible() -> None:
    text = hasse_svg(compile_section(PAPER), range(7))
    svg = ElementTree.fromstring(text)
    assert svg.get("role") == "img"
    assert (svg.get("aria-label") or "").startswith("Cumulative rules: 3 kept, 4 pruned")
    assert not re.search(r"<script|<style|<image|href|url\(|@import", text)
    assert len([p for p in svg.iter(f"{SVG}path") if p.get("class") == "bold"]) == 4
    assert "(2 of 7 rules)" in hasse_svg(compile_section(PAPER), [0, 1])


def test_an_empty_selection_gives_a_valid_drawing() -> None:
    assert draw(compile_section(PAPER), []).tag == f"{SVG}svg"


def test_the_drawing_does_not_depend_on_the_order_of_the_rules(section: CompiledSection) -> None:
    numbers = select_rules(section, None, None)
    assert hasse_svg(section, numbers) == hasse_svg(section, list(reversed(numbers)))


def test_too_many_rules_are_rejected_before_any_comparison() -> None:
    section = compile_section(PAPER)
    with pytest.raises(InvalidValue, match=r"401 rules .* `--unit` .* `--policy`") as caught:
        # Most of these rules do not exist, so accessing one would raise another error.
        hasse_svg(section, range(MAX_NODES + 1))
    assert caught.value.code == "P047"


def rectangles(
    layout: DiagramLayout, sizes: list[BoxSize]
) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of every box."""
    pairs = zip(layout.corners, sizes, strict=True)
    return [(x, y, x + size.width, y + size.height) for (x, y), size in pairs]


GRAPHS = {
    "nothing": (0, []),
    "single boxes": (60, []),
    "fan": (90, [(n, 0) for n in range(1, 90)]),
    "divisors": (60, [(b - 1, a - 1) for a in range(1, 61) for b in (2 * a, 3 * a) if b <= 60]),
    "two parts": (30, [(n, n - 2) for n in range(2, 30)]),
    "long and short": (12, [*((n, n - 1) for n in range(1, 11)), (11, 0), (10, 11)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_and_lines_do_not_overlap(name: str) -> None:
    count, edges = GRAPHS[name]
    sizes = [BoxSize(120.0 + 40 * (n % 3), 40.0 + 30 * (n % 4)) for n in range(count)]
    layout = lay_out(sizes, edges)
    boxes = rectangles(layout, sizes)
    for a, b in combinations(boxes, 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    for x, y, right, bottom in boxes:
        assert x >= -1e-6 and y >= 0
        assert right <= layout.width + 1e-6 and bottom <= layout.height + 1e-6
    for lower, upper in edges:
        assert boxes[lower][1] > boxes[upper][3]
    for line in layout.lines:
        assert not any(enters_box(line.start, line.bend, line.end, box) for box in boxes)


def enters_box(
    start: tuple[float, float],
    bend: tuple[float, float],
    end: tuple[float, float],
    box: tuple[float, float, float, float],
) -> bool:
    """Return whether the straight part of a line, or the band of its curve, enters a box."""
    left, top, right, bottom = box
    straight = left < start[0] < right and top < bend[1] - 1e-6 and start[1] + 1e-6 < bottom
    low, high = sorted((bend[0], end[0]))
    curve = left < high and low < right and top < end[1] - 1e-6 and bend[1] + 1e-6 < bottom
    return straight or curve


@pytest.mark.parametrize("name", GRAPHS)
def test_lines_connect_the_boxes_of_every_edge(name: str) -> None:
    count, edges = GRAPHS[name]
    sizes = [BoxSize(150.0, 60.0)] * count
    layout = lay_out(sizes, edges)
    boxes = rectangles(layout, sizes)
    for edge in edges:
        pieces = [line for line in layout.lines if edge in line.edges]
        pieces.sort(key=lambda piece: piece.start[1])
        lower, upper = boxes[edge[0]], boxes[edge[1]]
        assert upper[0] < pieces[0].start[0] < upper[2] and pieces[0].start[1] == upper[3]
        assert lower[0] < pieces[-1].end[0] < lower[2] and pieces[-1].end[1] == lower[1]
        for before, after in pairwise(pieces):
            assert before.end == after.start


def test_text_is_wrapped_to_the_maximum_width() -> None:
    long = "per-category[a-very-long-name-of-a-category-indeed, member]"
    for parts in (["short", "any"], [long, "standard"], ["w" * 100], ["患者", "数据" * 30]):
        lines = wrap_text(parts, " × ", "name")
        assert max(text_width(line, "name") for line in lines) <= MAX_TEXT
        assert "".join(lines).replace(" ", "") == " × ".join(parts).replace(" ", "")
    assert wrap_text([long], " × ", "name")[0] == "per-category"


def test_markup_in_texts_is_escaped() -> None:
    text = draw_svg("a < b & c", [[RuleBox("<x> & 'y'", ('"',), "<z>")]], [], set())
    (content,) = box_texts(ElementTree.fromstring(text), "pruned").values()
    assert content == "<x>&'y'\"impliedby<z>"
