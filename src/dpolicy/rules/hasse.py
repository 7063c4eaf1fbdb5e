"""Rules of a section → their Hasse diagram as a picture (paper, figure `hasse`).

Wide scopes stand on top, a line leads from a rule to the next wider ones. A pruned rule is grey and
dashed, and the way from it to the rule that implies it is bold.

The order of rules is a preorder: two rules can have equivalent scopes and the same unit. They are
one node here, drawn as several boxes in one frame. (A chain by number would be wrong: the rule that
implies another of equal scope may be the earlier or the later one.) An edge between nodes names
each by its first rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from xml.sax.saxutils import escape, quoteattr

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import describe
from dpolicy.rules.compiler import Section
from dpolicy.rules.drawing import Edge, Layout, Line, Size, lay_out, text_width, wrap
from dpolicy.rules.order import Order
from dpolicy.rules.rule import TIMES, Rule

#: A square of twenty by twenty boxes; nobody follows lines in more.
MAX_NODES = 400
#: Pixels that a line of text in a box may be long.
MAX_TEXT = 210.0

_PAD, _MARGIN, _TOP, _LEADING = 9.0, 28.0, 100.0, 1.3
_FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
#: Size and weight of each kind of text.
_STYLES = {
    "heading": (18.0, ' font-weight="bold"'),
    "name": (13.0, ' font-weight="bold"'),
    "budget": (12.0, ""),
    "by": (11.0, ' font-style="italic"'),
}
#: Kept and pruned differ in lightness, line and words, not only in hue; all text has a contrast of
#: at least 5 on its ground.
_INK = {"kept": "#10263d", "pruned": "#666666"}
_BOXES = {
    "kept": 'fill="#e3eef9" stroke="#1d4f80" stroke-width="1.8"',
    "pruned": 'fill="#fbfbfb" stroke="#8c8c8c" stroke-width="1.2" stroke-dasharray="5 4"',
}
_FRAME = 'fill="#f1f1ee" stroke="#a8a8a0" stroke-width="1"'
_STROKES = {
    "thin": 'stroke="#b0b0b0" stroke-width="1.2"',
    "bold": 'stroke="#2b2b2b" stroke-width="3"',
}
_LEGEND = (
    ("kept", "kept"),
    ("pruned", "pruned: implied by another rule"),
    ("bold", "way to the rule that implies it"),
    ("thin", "inside the wider scope above"),
    ("frame", "the same scope and unit"),
)

Node = tuple[int, ...]


def select(section: Section, unit: str | None, policy: str | None) -> list[int]:
    """The numbers of the rules of one unit and of one base policy; None takes all."""
    width = section.rules.width
    return [
        base * width + combination
        for base, of in enumerate(section.rules.bases)
        if unit in (None, of.unit) and policy in (None, of.policy)
        for combination in range(width)
    ]


def nodes(section: Section, numbers: Collection[int]) -> list[Node]:
    """The rules by node: those of equivalent scope and unit together, in the order of numbers.

    Raises `InvalidValue` if there are more than anybody can read.
    """
    return list(_members(section, numbers).values())


def covers(section: Section, numbers: Collection[int]) -> list[tuple[int, int]]:
    """The edges (smaller, larger) of the Hasse diagram of these rules.

    Their transitive closure is the order; none of them follows from the others.
    """
    members = _members(section, numbers)
    first = [node[0] for node in members.values()]
    up = _masks_above(section, list(members))
    edges = []
    for position, mask in enumerate(up):
        beyond = 0
        for wider in _bits(mask):
            beyond |= up[wider]
        edges += [(first[position], first[wider]) for wider in _bits(mask & ~beyond)]
    return edges


def _members(section: Section, numbers: Collection[int]) -> dict[Node, Node]:
    """The rules of each cell of the product of classes, for those cells that have any."""
    drawn = sorted(set(numbers))
    if len(drawn) > MAX_NODES:
        raise InvalidValue(
            "P047",
            f"{len(drawn)} rules are too many to draw, the most is {MAX_NODES}: "
            "choose one unit with `--unit` or one base policy with `--policy`",
        )
    found: dict[Node, Node] = {}
    for number in drawn:
        cell = _cell(section, number)
        found[cell] = (*found.get(cell, ()), number)
    return found


def _cell(section: Section, number: int) -> Node:
    """The class of a rule in every factor."""
    arrangement = section.arrangement
    base, combination = divmod(number, section.rules.width)
    settings = []
    for order in reversed(arrangement.settings):
        combination, position = divmod(combination, len(order.classes))
        settings.append(order.classes[position])
    scope = arrangement.scopes.classes[arrangement.scope_of[base]]
    unit = arrangement.units.classes[arrangement.unit_of[base]]
    return (scope, unit, *reversed(settings))


def _masks_above(section: Section, cells: Sequence[Node]) -> list[int]:
    """For every cell the bit mask of those strictly above it: wider or equal in every factor."""
    up = [~(1 << position) & ((1 << len(cells)) - 1) for position in range(len(cells))]
    for factor, order in enumerate(section.arrangement.factors):
        wider = _masks_of_factor(order, [cell[factor] for cell in cells])
        up = [mask & wider[cell[factor]] for mask, cell in zip(up, cells, strict=True)]
    return up


def _masks_of_factor(order: Order, classes: Sequence[int]) -> dict[int, int]:
    """For every class that occurs, the mask of the positions that hold it or one above it."""
    holding: dict[int, int] = {}
    for position, number in enumerate(classes):
        holding[number] = holding.get(number, 0) | 1 << position
    masks = dict(holding)
    for number in masks:
        for higher in order.above[number]:
            masks[number] |= holding.get(higher, 0)
    return masks


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def implying_path(section: Section, numbers: Collection[int]) -> set[tuple[int, int]]:
    """The edges on the ways from pruned rules to the rules that imply them, where both are drawn.

    All ways to one rule form a tree of shortest ways, so that as little as possible is bold.
    """
    first = {number: node[0] for node in nodes(section, numbers) for number in node}
    below: dict[int, list[int]] = {}
    for smaller, larger in covers(section, numbers):
        below.setdefault(larger, []).append(smaller)
    implied: dict[int, list[int]] = {}
    for number in sorted(first):
        witness = int(section.pruned.witness[number])
        if witness in first:
            implied.setdefault(first[witness], []).append(first[number])
    path = set()
    for top, starts in implied.items():
        towards = _ways_down(top, below)
        for step in starts:
            while step != top:
                path.add((step, towards[step]))
                step = towards[step]
    return path


def _ways_down(top: int, below: dict[int, list[int]]) -> dict[int, int]:
    """For every node under one, the next step of a shortest way up to it."""
    towards = {top: top}
    queue = deque([top])
    while queue:
        node = queue.popleft()
        for lower in below.get(node, ()):
            if lower not in towards:
                towards[lower] = node
                queue.append(lower)
    return towards


def hasse_svg(section: Section, numbers: Collection[int]) -> str:
    """The Hasse diagram of these rules: one SVG that needs nothing else."""
    drawn = frozenset(numbers)
    frames = [[_card(section, number, drawn) for number in node] for node in nodes(section, drawn)]
    position = {cards[0].rule.number: place for place, cards in enumerate(frames)}
    edges = [(position[a], position[b]) for a, b in covers(section, drawn)]
    bold = {(position[a], position[b]) for a, b in implying_path(section, drawn)}
    wide = max((card.width for cards in frames for card in cards), default=0.0)
    layout = lay_out([_frame_size(cards, wide) for cards in frames], edges)
    parts = [_line(line, frames, bold) for line in _thin_first(layout.lines, bold)]
    for cards, corner in zip(frames, layout.corners, strict=True):
        parts += _frame(cards, corner, wide)
    return _page(_heading(section, drawn), layout, parts)


@dataclass(frozen=True, slots=True)
class _Text:
    """One line of a box: what it says and in which style."""

    words: str
    style: str

    @property
    def size(self) -> float:
        return _STYLES[self.style][0]


@dataclass(frozen=True, slots=True)
class _Card:
    """The box of one rule."""

    rule: Rule
    texts: tuple[_Text, ...]
    kept: bool
    tip: str

    @property
    def width(self) -> float:
        return 2 * _PAD + max(text_width(text.words, text.size) for text in self.texts)

    @property
    def height(self) -> float:
        return 2 * _PAD + sum(text.size * _LEADING for text in self.texts)


def _card(section: Section, number: int, drawn: frozenset[int]) -> _Card:
    rule = section.rules[number]
    witness = section.implied_by(rule)
    budget = describe(rule.budget).split("  ")
    texts = _wrapped("name", rule.name.split(TIMES), TIMES)
    texts += _wrapped("budget", [rule.unit, *budget], " · ")
    tip = [rule.name, f"unit {rule.unit}, {', '.join(budget)}"]
    if witness is not None:
        by = f"implied by {witness.name}"
        by += f" for {witness.unit}" if witness.unit != rule.unit else ""
        by += "" if witness.number in drawn else " (not drawn)"
        texts += _wrapped("by", by.split(TIMES), TIMES)
        tip.append(f"pruned: {by}")
    return _Card(rule, tuple(texts), witness is None, "\n".join(tip))


def _wrapped(style: str, parts: Sequence[str], joint: str) -> list[_Text]:
    lines = wrap(parts, joint, _STYLES[style][0], MAX_TEXT)
    return [_Text(line, style) for line in lines]


def _columns(cards: Sequence[_Card]) -> int:
    return ceil(sqrt(len(cards)))


def _card_rows(cards: Sequence[_Card]) -> list[tuple[Sequence[_Card], float]]:
    """The boxes of a frame in rows of a square, each with its height."""
    count = _columns(cards)
    rows = [cards[start : start + count] for start in range(0, len(cards), count)]
    return [(row, max(card.height for card in row)) for row in rows]


def _frame_size(cards: Sequence[_Card], wide: float) -> Size:
    """A single box has no frame; several have a margin around and between them."""
    if len(cards) == 1:
        return Size(wide, cards[0].height)
    width = _columns(cards) * (wide + _PAD) + _PAD
    return Size(width, sum(height + _PAD for _, height in _card_rows(cards)) + _PAD)


def _frame(cards: Sequence[_Card], corner: tuple[float, float], wide: float) -> list[str]:
    x, y = corner
    if len(cards) == 1:
        return [_box(cards[0], x, y, Size(wide, cards[0].height))]
    size = _frame_size(cards, wide)
    parts = [f'<rect class="frame" {_rect(x, y, size)} {_FRAME}/>']
    y += _PAD
    for row, height in _card_rows(cards):
        for place, card in enumerate(row):
            left = x + _PAD + place * (wide + _PAD)
            parts.append(_box(card, left, y, Size(wide, height)))
        y += height + _PAD
    return parts


def _box(card: _Card, x: float, y: float, size: Size) -> str:
    kind = "kept" if card.kept else "pruned"
    rows = []
    line = y + _PAD
    for text in card.texts:
        # The baseline leaves a quarter of the letters' size for their descenders.
        line += text.size * _LEADING
        rows.append(_written(text.words, x + size.width / 2, line - text.size * 0.3, text.style))
    return (
        f'<g class="rule {kind}" fill="{_INK[kind]}"><title>{escape(card.tip)}</title>'
        f"<rect {_rect(x, y, size)} {_BOXES[kind]}/>{''.join(rows)}</g>"
    )


def _written(words: str, x: float, y: float, style: str, anchor: str = "middle") -> str:
    size, more = _STYLES[style]
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}"{more}>'
        f"{escape(words)}</text>"
    )


def _rect(x: float, y: float, size: Size) -> str:
    shape = f'width="{size.width:.1f}" height="{size.height:.1f}" rx="6"'
    return f'x="{x:.1f}" y="{y:.1f}" {shape}'


def _thin_first(lines: Sequence[Line], bold: set[Edge]) -> list[Line]:
    """Bold lines are drawn over thin ones."""
    return sorted(lines, key=lambda line: not bold.isdisjoint(line.edges))


def _line(line: Line, frames: Sequence[Sequence[_Card]], bold: set[Edge]) -> str:
    """Down to the end of its row, then in a curve to the start of the next."""
    kind = "thin" if bold.isdisjoint(line.edges) else "bold"
    (x, start), (_, bend), (end, stop) = line.start, line.bend, line.end
    middle = (bend + stop) / 2
    curve = f"C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {stop:.1f}"
    tip = f"inside {frames[line.edges[0][1]][0].rule.name}"
    path = f'd="M{x:.1f} {start:.1f}V{bend:.1f}{curve}" {_STROKES[kind]}'
    return f'<path class="{kind}" {path}><title>{escape(tip)}</title></path>'


def _heading(section: Section, drawn: frozenset[int]) -> str:
    kept = sum(bool(section.pruned.kept[number]) for number in drawn)
    kind = "Rules for each release" if section.rules.each_release else "Rules for all releases"
    some = (
        f", {len(drawn)} of {len(section.rules)} drawn" if len(drawn) < len(section.rules) else ""
    )
    return f"{kind}: {kept} kept, {len(drawn) - kept} pruned{some}"


def _page(heading: str, layout: Layout, parts: Sequence[str]) -> str:
    """Heading and legend over the drawing, which is in the middle."""
    inner = max(layout.width, _LEGEND_WIDTH, text_width(heading, _STYLES["heading"][0]))
    width, height = inner + 2 * _MARGIN, layout.height + _TOP + _MARGIN
    shift = _MARGIN + (inner - layout.width) / 2
    tip = f"{heading}. Wider scopes are higher; lines lead from a rule to the next wider ones."
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(tip)} '
            f'width="{ceil(width)}" height="{ceil(height)}" '
            f'viewBox="0 0 {ceil(width)} {ceil(height)}" font-family="{_FONTS}" fill="none">',
            f"<title>{escape(heading)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<g fill="{_INK["kept"]}">{_written(heading, _MARGIN, 36, "heading", "start")}</g>',
            *_legend(),
            f'<g transform="translate({shift:.1f} {_TOP:g})">',
            *parts,
            "</g>",
            "</svg>\n",
        )
    )


def _legend() -> list[str]:
    """A sample of each kind of box and line, and what it means."""
    parts = []
    x = _MARGIN
    for kind, meaning in _LEGEND:
        sample = _BOXES.get(kind) or (_FRAME if kind == "frame" else "")
        if sample:
            parts.append(f"<rect {_rect(x, 54, Size(30, 18))} {sample}/>")
        else:
            parts.append(f'<path d="M{x:g} 63h30" {_STROKES[kind]}/>')
        words = _written(meaning, x + 38, 67, "budget", "start")
        parts.append(f'<g fill="{_INK["kept"]}">{words}</g>')
        x += _legend_step(meaning)
    return parts


def _legend_step(meaning: str) -> float:
    return 38 + text_width(meaning, _STYLES["budget"][0]) + 22


_LEGEND_WIDTH = sum(_legend_step(meaning) for _, meaning in _LEGEND)
