"""The Hasse diagram is the order of the rules and no more, and the picture shows all of it."""

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
    """One line of policy text."""
    return (
        f"  - {{name: {name}, kind: custom, when: '{when}', unit: {unit}, "
        f"budget: {{epsilon: {epsilon}}}}}\n"
    )


def among(*teams: str) -> str:
    """A predicate on the label `team`."""
    quoted = ", ".join(f'"{team}"' for team in teams)
    return f"labels.team in [{quoted}]"


#: The figure of the paper: rules 2, 3, 5 and 7 are pruned.
PAPER = (
    custom("phi-1", "always", 7)
    + custom("phi-2", among("a", "b"), 7)
    + custom("phi-3", among("b", "c"), 7)
    + custom("phi-4", among("d", "e"), 5)
    + custom("phi-5", among("a"), 7)
    + custom("phi-6", among("b"), 3)
    + custom("phi-7", among("d"), 5)
)
#: Two pairs of equivalent predicates, one with the tighter budget first and one with it last.
EQUIVALENT = (
    custom("first", among("a", "b"), 1)
    + custom("again", 'labels.team == "a" || labels.team == "b"', 2)
    + custom("loose", among("c", "d"), 4)
    + custom("tight", 'labels.team == "d" || labels.team == "c"', 3)
    + custom("inside", among("a"), 2)
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


def section_of(policies: str) -> CompiledSection:
    """The compiled rules over all releases."""
    return compile_policy([Source("sample.yaml", HEAD + policies)]).cumulative


@pytest.fixture(params=POLICIES, scope="module")
def section(request: pytest.FixtureRequest) -> CompiledSection:
    """Each of the samples in turn."""
    return section_of(POLICIES[request.param])


def leq(section: CompiledSection, a: int, b: int) -> bool:
    """The order of two rules, straight from the definition."""
    at = section.factor_orders
    (base_a, rest_a), (base_b, rest_b) = (divmod(n, section.rules.width) for n in (a, b))
    same = at.scopes.leq(at.scope_of_base[base_a], at.scope_of_base[base_b])
    same = same and at.units.leq(at.unit_of_base[base_a], at.unit_of_base[base_b])
    for axis, order in zip(reversed(section.rules.axes), reversed(at.settings), strict=True):
        rest_a, place_a = divmod(rest_a, len(axis))
        rest_b, place_b = divmod(rest_b, len(axis))
        same = same and order.leq(place_a, place_b)
    return same


def reachable(edges: Collection[tuple[int, int]], start: int) -> set[int]:
    """What lies above by following edges, the start included."""
    found = {start}
    queue = [start]
    for node in queue:
        fresh = [b for a, b in edges if a == node and b not in found]
        found.update(fresh)
        queue += fresh
    return found


def selections(section: CompiledSection) -> list[list[int]]:
    """All rules, every third, and those of one base policy."""
    every = select_rules(section, None, None)
    return [every, every[::3], select_rules(section, "user", section.rules.bases[1].policy)]


def test_nodes_are_the_rules_of_equal_scope_and_unit(section: CompiledSection) -> None:
    for numbers in selections(section):
        found = diagram_nodes(section, numbers)
        assert sorted(number for node in found for number in node) == sorted(numbers)
        node_of = {number: node for node in found for number in node}
        for a, b in combinations(numbers, 2):
            equal = leq(section, a, b) and leq(section, b, a)
            assert equal == (node_of[a] == node_of[b])


def test_covers_generate_exactly_the_order(section: CompiledSection) -> None:
    for numbers in selections(section):
        edges = hasse_edges(section, numbers)
        firsts = [node[0] for node in diagram_nodes(section, numbers)]
        for a in firsts:
            assert reachable(edges, a) == {b for b in firsts if leq(section, a, b)}


def test_no_cover_follows_from_others(section: CompiledSection) -> None:
    edges = hasse_edges(section, select_rules(section, None, None))
    assert len(set(edges)) == len(edges)
    for a, b in edges:
        assert b not in reachable([edge for edge in edges if edge != (a, b)], a)


def test_the_samples_have_what_they_are_for() -> None:
    equivalent = section_of(EQUIVALENT)
    assert diagram_nodes(equivalent, range(6)) == [(0, 1), (2, 3), (4,), (5,)]
    assert hasse_edges(equivalent, range(6)) == [(0, 5), (2, 5), (4, 0)]
    product = section_of(PRODUCT)
    edges = hasse_edges(product, select_rules(product, None, None))
    assert any(product.rules[a].unit != product.rules[b].unit for a, b in edges)


def test_the_figure_of_the_paper() -> None:
    section = section_of(PAPER)
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
    section = section_of(PRODUCT)
    assert select_rules(section, None, None) == list(range(len(section.rules)))
    for unit, policy in (("user", None), (None, "attribute"), ("user-month", "attribute")):
        wanted = [
            rule.number
            for rule in section.rules
            if unit in (None, rule.unit) and policy in (None, rule.base.policy)
        ]
        assert wanted
        assert select_rules(section, unit, policy) == wanted
    assert select_rules(section, "household", None) == []


def drawn(section: CompiledSection, numbers: Collection[int]) -> ElementTree.Element:
    """The picture, read back."""
    return ElementTree.fromstring(hasse_svg(section, numbers))


def boxes_of(svg: ElementTree.Element, kind: str) -> dict[str, str]:
    """What the boxes of a kind say, without spaces, by their tips."""
    found = {}
    for group in svg.iter(f"{SVG}g"):
        if group.get("class") == f"rule {kind}":
            said = "".join("".join(text.itertext()) for text in group.iter(f"{SVG}text"))
            found[group.findtext(f"{SVG}title", "")] = said.replace(" ", "")
    return found


def test_every_rule_has_a_box_of_its_kind(section: CompiledSection) -> None:
    numbers = select_rules(section, None, None)
    svg = drawn(section, numbers)
    kept, pruned = boxes_of(svg, "kept"), boxes_of(svg, "pruned")
    assert len(kept) == int(section.pruning.kept.sum())
    assert len(kept) + len(pruned) == len(numbers)
    for rule in section.rules:
        witness = section.implied_by(rule)
        among_these = kept if witness is None else pruned
        start = f"{rule.name}: {rule.unit},"
        (said,) = (said for tip, said in among_these.items() if tip.startswith(start))
        assert said.startswith(rule.name.replace(" ", ""))
        if witness is not None:
            assert f"impliedby{witness.name}".replace(" ", "") in said


def test_boxes_of_rules_do_not_overlap(section: CompiledSection) -> None:
    for numbers in selections(section):
        groups = drawn(section, numbers).iter(f"{SVG}g")
        rules = [group for group in groups if (group.get("class") or "").startswith("rule ")]
        places = []
        for rect in (rect for group in rules for rect in group.iter(f"{SVG}rect")):
            x, y, width, height = (float(rect.get(k, "")) for k in ("x", "y", "width", "height"))
            places.append((x, y, x + width, y + height))
        assert len(places) == len(numbers)
        for a, b in combinations(places, 2):
            assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def test_a_witness_outside_the_drawing_is_named_as_such() -> None:
    section = section_of(PAPER)
    (box,) = boxes_of(drawn(section, [1]), "pruned").values()
    assert box.endswith("impliedbyphi-1(notdrawn)")
    assert implication_edges(section, [1]) == set()


def test_the_picture_is_whole_and_speaks() -> None:
    text = hasse_svg(section_of(PAPER), range(7))
    svg = ElementTree.fromstring(text)
    assert svg.get("role") == "img"
    assert (svg.get("aria-label") or "").startswith("Cumulative rules: 3 kept, 4 pruned")
    assert not re.search(r"<script|<style|<image|href|url\(|@import", text)
    assert len([p for p in svg.iter(f"{SVG}path") if p.get("class") == "bold"]) == 4
    assert "(2 of 7 rules)" in hasse_svg(section_of(PAPER), [0, 1])


def test_nothing_to_draw_is_still_a_picture() -> None:
    assert drawn(section_of(PAPER), []).tag == f"{SVG}svg"


def test_the_same_rules_give_the_same_text(section: CompiledSection) -> None:
    numbers = select_rules(section, None, None)
    assert hasse_svg(section, numbers) == hasse_svg(section, list(reversed(numbers)))


def test_too_many_rules_are_refused_before_any_is_compared() -> None:
    section = section_of(PAPER)
    with pytest.raises(InvalidValue, match=r"401 rules .* `--unit` .* `--policy`") as caught:
        # Most of these numbers do not exist: looking at one would fail otherwise.
        hasse_svg(section, range(MAX_NODES + 1))
    assert caught.value.code == "P047"


def rectangles(
    layout: DiagramLayout, sizes: list[BoxSize]
) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of every box."""
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
def test_boxes_and_lines_keep_clear_of_each_other(name: str) -> None:
    count, edges = GRAPHS[name]
    sizes = [BoxSize(120.0 + 40 * (n % 3), 40.0 + 30 * (n % 4)) for n in range(count)]
    layout = lay_out(sizes, edges)
    places = rectangles(layout, sizes)
    for a, b in combinations(places, 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    for x, y, right, bottom in places:
        assert x >= -1e-6 and y >= 0
        assert right <= layout.width + 1e-6 and bottom <= layout.height + 1e-6
    for lower, upper in edges:
        assert places[lower][1] > places[upper][3]
    for line in layout.lines:
        assert not any(runs_over(line.start, line.bend, line.end, place) for place in places)


def runs_over(
    start: tuple[float, float],
    bend: tuple[float, float],
    end: tuple[float, float],
    box: tuple[float, float, float, float],
) -> bool:
    """Whether a line enters the inside of a box: its straight part, or the band of its curve."""
    left, top, right, bottom = box
    straight = left < start[0] < right and top < bend[1] - 1e-6 and start[1] + 1e-6 < bottom
    low, high = sorted((bend[0], end[0]))
    curve = left < high and low < right and top < end[1] - 1e-6 and bend[1] + 1e-6 < bottom
    return straight or curve


@pytest.mark.parametrize("name", GRAPHS)
def test_lines_join_every_edge_from_box_to_box(name: str) -> None:
    count, edges = GRAPHS[name]
    sizes = [BoxSize(150.0, 60.0)] * count
    layout = lay_out(sizes, edges)
    places = rectangles(layout, sizes)
    for edge in edges:
        pieces = [line for line in layout.lines if edge in line.edges]
        pieces.sort(key=lambda piece: piece.start[1])
        lower, upper = places[edge[0]], places[edge[1]]
        assert upper[0] < pieces[0].start[0] < upper[2] and pieces[0].start[1] == upper[3]
        assert lower[0] < pieces[-1].end[0] < lower[2] and pieces[-1].end[1] == lower[1]
        for before, after in pairwise(pieces):
            assert before.end == after.start


def test_words_are_wrapped_and_never_too_long() -> None:
    long = "per-category[a-very-long-name-of-a-category-indeed, member]"
    for parts in (["short", "any"], [long, "standard"], ["w" * 100], ["患者", "数据" * 30]):
        lines = wrap_text(parts, " × ", "name")
        assert max(text_width(line, "name") for line in lines) <= MAX_TEXT
        assert "".join(lines).replace(" ", "") == " × ".join(parts).replace(" ", "")
    assert wrap_text([long], " × ", "name")[0] == "per-category"


def test_words_with_markup_are_escaped() -> None:
    text = draw_svg("a < b & c", [[RuleBox("<x> & 'y'", ('"',), "<z>")]], [], set())
    (said,) = boxes_of(ElementTree.fromstring(text), "pruned").values()
    assert said == "<x>&'y'\"impliedby<z>"
