"""SVG drawing of boxes with text and the lines between them, without scripts, styles or fonts.

Kept and pruned rules differ in lightness, border and text, never in hue alone. The text is measured
for the widest common font and wrapped, so that it fits its box in every other font.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from xml.sax.saxutils import escape, quoteattr

from dpolicy.rules.hasse.layered_layout import BoxSize, DiagramLayout, Edge, EdgeSegment, lay_out
from dpolicy.rules.rule import TIMES

#: Maximum length of a text line in a box, in pixels.
MAX_TEXT = 200.0

_PAD, _MARGIN, _TOP, _LEADING = 9.0, 28.0, 104.0, 1.3
_FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
#: Size of each kind of text, and its other attributes.
_STYLES = {
    "heading": (18.0, ' font-weight="bold"'),
    "name": (13.0, ' font-weight="bold"'),
    "plain": (12.0, ""),
    "small": (11.0, ' font-style="italic"'),
}
#: Text colours with a contrast of at least 5 to 1.
_INK = {"kept": "#10263d", "pruned": "#666666"}
_SHAPES = {
    "kept": 'fill="#e3eef9" stroke="#1d4f80" stroke-width="1.8"',
    "pruned": 'fill="#fbfbfb" stroke="#8c8c8c" stroke-width="1.2" stroke-dasharray="5 4"',
    "frame": 'fill="#efefeb" stroke="#a8a8a0" stroke-width="1"',
    "bold": 'stroke="#2b2b2b" stroke-width="3"',
    "thin": 'stroke="#949494" stroke-width="1.2"',
}
#: Meaning of each kind of box and line in a diagram of rules.
LEGEND = {
    "kept": "kept",
    "pruned": "pruned: implied by another rule",
    "bold": "path to the rule that implies it",
    "thin": "inside the wider scope above",
    "frame": "same scope and unit",
}


@dataclass(frozen=True, slots=True)
class RuleBox:
    """Text of a rule: its name, unit and budget, and the witness of a pruned rule."""

    name: str
    facts: tuple[str, ...]
    implied_by: str | None

    @property
    def kind(self) -> str:
        """Style of the box."""
        return "kept" if self.implied_by is None else "pruned"

    @property
    def tip(self) -> str:
        """Tooltip of the box."""
        by = "" if self.implied_by is None else f"; implied by {self.implied_by}"
        return f"{self.name}: {', '.join(self.facts)}; {self.kind}{by}"


#: A line of text and the name of its style.
_Text = tuple[str, str]
#: Rows of the boxes that share a node, each with its text; and the height of each row.
_Grid = list[tuple[list[tuple[RuleBox, list[_Text]]], float]]


def draw_svg(
    heading: str,
    nodes: Sequence[Sequence[RuleBox]],
    edges: Sequence[Edge],
    bold: Collection[Edge],
    legend: Mapping[str, str] = LEGEND,
) -> str:
    """Draw nodes of one or several boxes, and the edges between them; `legend` explains both."""
    grids = [_grid(cards) for cards in nodes]
    texts = [text for grid in grids for row, _ in grid for _, words in row for text in words]
    wide = 2 * _PAD + max((text_width(*text) for text in texts), default=0.0)
    layout = lay_out([_size(grid, wide) for grid in grids], edges)
    thick = frozenset(bold)
    # Bold lines are drawn over thin ones.
    ordered = sorted(layout.lines, key=lambda line: not thick.isdisjoint(line.edges))
    parts = [_line(line, nodes[line.edges[0][1]][0].name, thick) for line in ordered]
    for grid, (x, y) in zip(grids, layout.corners, strict=True):
        parts += _node(grid, x, y, wide)
    return _page(heading, layout, parts, legend)


def text_width(words: str, style: str) -> float:
    """Return an upper bound of the width of a text in pixels, over all common fonts."""
    return _STYLES[style][0] * sum(map(_letter_width, words))


def _letter_width(letter: str) -> float:
    """Return the width relative to the font size, rounded up from DejaVu Sans Bold."""
    if letter in " ijl.,:;|'·/":
        return 0.42
    if letter in "frtI!()[]-_":
        return 0.52
    if letter in "mwMW@%" or not (letter.isascii() or letter in "×εδρμé"):
        return 1.12
    return 0.88 if letter.isupper() or letter in "×#&+<=>^~" else 0.74


def wrap_text(parts: Sequence[str], joint: str, style: str) -> list[str]:
    """Join parts into lines of at most `MAX_TEXT` pixels.

    Split a part that is too long: before brackets, then at a space, then anywhere.
    """
    lines: list[str] = []
    for part in parts:
        start = joint.lstrip(" ·") if lines else ""
        if lines and text_width(lines[-1] + joint + part, style) <= MAX_TEXT:
            lines[-1] += joint + part
        elif text_width(start + part, style) <= MAX_TEXT:
            lines.append(start + part)
        else:
            lines += _split(start + part, style)
    return lines


def _split(words: str, style: str) -> list[str]:
    lines = []
    for part in words.replace("[", "\n[").split("\n"):
        lines.append("")
        for piece in part.replace(" ", " \n").split("\n"):
            if lines[-1] and text_width(lines[-1] + piece.rstrip(), style) > MAX_TEXT:
                lines.append("")
            for letter in piece:
                if text_width((lines[-1] + letter).rstrip(), style) > MAX_TEXT:
                    lines.append("")
                lines[-1] += letter
    return [line.strip() for line in lines if line.strip()]


def _box_text(card: RuleBox) -> list[_Text]:
    lines = [(line, "name") for line in wrap_text(card.name.split(TIMES), TIMES, "name")]
    lines += [(line, "plain") for line in wrap_text(card.facts, " · ", "plain")]
    if card.implied_by is not None:
        parts = f"implied by {card.implied_by}".split(TIMES)
        lines += [(line, "small") for line in wrap_text(parts, TIMES, "small")]
    return lines


def _text_height(words: Sequence[_Text]) -> float:
    return sum(_STYLES[style][0] * _LEADING for _, style in words)


def _grid(cards: Sequence[RuleBox]) -> _Grid:
    """Arrange the boxes of a node in a square; three boxes share one row."""
    count = 3 if len(cards) == 3 else ceil(sqrt(len(cards)))
    boxes = [(card, _box_text(card)) for card in cards]
    rows = [boxes[start : start + count] for start in range(0, len(boxes), count)]
    return [(row, 2 * _PAD + max(_text_height(words) for _, words in row)) for row in rows]


def _size(grid: _Grid, wide: float) -> BoxSize:
    """Return the size of a node; several boxes have a frame with margins."""
    columns = len(grid[0][0])
    if columns == 1:
        return BoxSize(wide, grid[0][1])
    return BoxSize(columns * (wide + _PAD) + _PAD, sum(height + _PAD for _, height in grid) + _PAD)


def _node(grid: _Grid, x: float, y: float, wide: float) -> list[str]:
    parts = []
    if len(grid[0][0]) > 1:
        parts.append(_rect("frame", x, y, _size(grid, wide)))
        x, y = x + _PAD, y + _PAD
    for row, height in grid:
        for place, (card, words) in enumerate(row):
            parts.append(_box(card, words, x + place * (wide + _PAD), y, BoxSize(wide, height)))
        y += height + _PAD
    return parts


def _box(card: RuleBox, words: Sequence[_Text], x: float, y: float, size: BoxSize) -> str:
    texts = []
    line = y + (size.height - _text_height(words)) / 2
    for text, style in words:
        line += _STYLES[style][0] * _LEADING
        # The baseline leaves room below for descenders.
        base = line - _STYLES[style][0] * 0.35
        texts.append(_text_element(text, style, x + size.width / 2, base, "middle"))
    inner = f"<title>{escape(card.tip)}</title>{_rect(card.kind, x, y, size)}{''.join(texts)}"
    return f'<g class="rule {card.kind}" fill="{_INK[card.kind]}">{inner}</g>'


def _rect(kind: str, x: float, y: float, size: BoxSize) -> str:
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{size.width:.1f}" height="{size.height:.1f}" rx="6"'
    return f'<rect class="{kind}" {shape} {_SHAPES[kind]}/>'


def _text_element(words: str, style: str, x: float, y: float, anchor: str) -> str:
    size, more = _STYLES[style]
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f"<text {place}{more}>{escape(words)}</text>"


def _line(line: EdgeSegment, upper: str, bold: frozenset[Edge]) -> str:
    """Draw a line down to the end of its row, then as a curve to the next row."""
    kind = "thin" if bold.isdisjoint(line.edges) else "bold"
    (x, start), (_, bend), (end, stop) = line.start, line.bend, line.end
    middle = (bend + stop) / 2
    curve = f"C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {stop:.1f}"
    path = f'd="M{x:.1f} {start:.1f}V{bend:.1f}{curve}" {_SHAPES[kind]}'
    return f'<path class="{kind}" {path}><title>{escape(f"inside {upper}")}</title></path>'


def _page(
    heading: str, layout: DiagramLayout, parts: Sequence[str], legend: Mapping[str, str]
) -> str:
    """Put heading and legend above the centred drawing."""
    kinds = [kind for kind in legend if any(f'class="{kind}"' in part for part in parts)]
    meanings = {kind: legend[kind] for kind in kinds}
    steps = sum(map(_legend_step, meanings.values()))
    inner = max(layout.width, steps, text_width(heading, "heading"))
    width, height = ceil(inner + 2 * _MARGIN), ceil(layout.height + _TOP + _MARGIN)
    shift = _MARGIN + (inner - layout.width) / 2
    tip = f"{heading}. Wider scopes are higher; lines connect a rule with the next wider rules."
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(tip)} '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{_FONTS}" fill="none">'
    )
    top = _text_element(heading, "heading", _MARGIN, 38, "start") + _legend(meanings)
    return "\n".join(
        (
            opening,
            f"<title>{escape(heading)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<g class="legend" fill="{_INK["kept"]}">{top}</g>',
            f'<g class="drawing" transform="translate({shift:.1f} {_TOP:g})">',
            *parts,
            "</g>",
            "</svg>\n",
        )
    )


def _legend(meanings: Mapping[str, str]) -> str:
    """Draw a sample of each kind of box and line with its meaning."""
    parts = []
    x = _MARGIN
    for kind, meaning in meanings.items():
        if kind in ("bold", "thin"):
            parts.append(f'<path d="M{x:g} 67h30" {_SHAPES[kind]}/>')
        else:
            parts.append(_rect(kind, x, 58, BoxSize(30, 18)))
        parts.append(_text_element(meaning, "plain", x + 38, 71, "start"))
        x += _legend_step(meaning)
    return "".join(parts)


def _legend_step(meaning: str) -> float:
    return 38 + text_width(meaning, "plain") + 18
