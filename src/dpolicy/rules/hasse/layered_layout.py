"""Layered drawing of a directed graph: boxes in rows, and lines that cross no box.

The four steps of Sugiyama, Tagawa and Toda (1981): assign every box to a row below the boxes above
it, order the rows so that few lines cross, move the boxes towards their neighbours, and route the
lines. A line that passes a row uses a lane between the boxes, so no line crosses a box. All lines
from one upper box share their lanes, as in an organisation chart.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import sqrt

#: Pixels between two boxes of a row, and the width of a lane in pixels.
BOX_GAP, LANE = 26.0, 14.0
#: Pixels between two rows: minimum, maximum, and increment per line.
ROW_GAP, MAX_ROW_GAP, ROOM_PER_LINE = 46.0, 150.0, 2.4
#: Preferred row width in pixels; rows exceed it only if the drawing would become too high.
ROW_WIDTH = 1500.0
#: Preferred ratio of width to height of a large drawing.
ASPECT = 1.5
#: Number of sweeps that order rows and that move boxes; more sweeps change nothing visible.
ORDER_SWEEPS, PLACE_SWEEPS = 12, 40

#: Two boxes by their position in the list; the first is below the second.
Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class BoxSize:
    """Size of a box in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class EdgeSegment:
    """Part of a line between two adjacent rows, with the edges that use it."""

    start: tuple[float, float]
    bend: tuple[float, float]
    end: tuple[float, float]
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class DiagramLayout:
    """Upper left corner of every box, the lines, and the size of the drawing."""

    corners: tuple[tuple[float, float], ...]
    lines: tuple[EdgeSegment, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Net:
    """Boxes and lanes in rows, with links only between adjacent rows.

    Vertex numbers start with the boxes; lanes follow. `links` maps (upper, lower) to the edges that
    use the link.
    """

    rows: list[list[int]]
    widths: list[float]
    boxes: int
    links: dict[tuple[int, int], list[Edge]]
    ups: list[list[int]]
    downs: list[list[int]]


def lay_out(sizes: Sequence[BoxSize], edges: Sequence[Edge]) -> DiagramLayout:
    """Place every box in a row below the boxes above it, with lines that cross no other box."""
    parts = [_lay_out_part(sizes, edges, boxes) for boxes in _components(len(sizes), edges)]
    area = sum((part.width + BOX_GAP) * (part.height + ROW_GAP) for _, part in parts)
    max_width = max([ROW_WIDTH, sqrt(area * ASPECT), *(part.width for _, part in parts)])
    corners = [(0.0, 0.0)] * len(sizes)
    lines: list[EdgeSegment] = []
    x = y = shelf = width = 0.0
    for boxes, part in parts:
        if x and x + part.width > max_width:
            x, y, shelf = 0.0, y + shelf + ROW_GAP, 0.0
        for box, (left, top) in zip(boxes, part.corners, strict=True):
            corners[box] = (left + x, top + y)
        lines += [_shift(line, x, y, boxes) for line in part.lines]
        width, shelf = max(width, x + part.width), max(shelf, part.height)
        x += part.width + 2 * BOX_GAP
    return DiagramLayout(tuple(corners), tuple(lines), width, y + shelf)


def _components(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Return the connected components, largest first."""
    part = [{box} for box in range(count)]
    for a, b in edges:
        if part[a] is not part[b]:
            small, large = sorted((part[a], part[b]), key=len)
            large |= small
            for box in small:
                part[box] = large
    distinct = {id(boxes): sorted(boxes) for boxes in part}
    return sorted(distinct.values(), key=lambda boxes: (-len(boxes), boxes[0]))


def _lay_out_part(
    sizes: Sequence[BoxSize], edges: Sequence[Edge], boxes: Sequence[int]
) -> tuple[Sequence[int], DiagramLayout]:
    """Lay out one connected component; its boxes are numbered from 0."""
    place = {box: position for position, box in enumerate(boxes)}
    own = [sizes[box] for box in boxes]
    inner = [(place[a], place[b]) for a, b in edges if a in place]
    net = _net(own, inner, _rows(own, inner))
    _untangle(net)
    return boxes, _route(net, own, _centres(net))


def _shift(line: EdgeSegment, x: float, y: float, boxes: Sequence[int]) -> EdgeSegment:
    (a, b), (c, d), (e, f) = line.start, line.bend, line.end
    edges = tuple((boxes[lower], boxes[upper]) for lower, upper in line.edges)
    return EdgeSegment((a + x, b + y), (c + x, d + y), (e + x, f + y), edges)


def _rows(sizes: Sequence[BoxSize], edges: Sequence[Edge]) -> list[int]:
    """Return the row of each box: as high as possible, with a limit on the width of a row.

    Boxes with the longest path below them come first, so that single boxes fill the ends of rows.
    """
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for lower, upper in edges:
        above[lower].append(upper)
        below[upper].append(lower)
    depth = [0] * len(sizes)
    for box in reversed(_topological(above, below)):
        depth[box] = max((depth[lower] + 1 for lower in below[box]), default=0)
    area = sum((size.width + BOX_GAP) * (size.height + ROW_GAP) for size in sizes)
    max_width = max(ROW_WIDTH, sqrt(area * ASPECT))
    rows = [-1] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda box: (-depth[box], box))
    row = 0
    while waiting:
        room = max_width
        for box in waiting:
            ready = all(0 <= rows[upper] < row for upper in above[box])
            if ready and (room >= sizes[box].width or room == max_width):
                rows[box] = row
                room -= sizes[box].width + BOX_GAP
        waiting = [box for box in waiting if rows[box] < 0]
        row += 1
    return rows


def _topological(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[int]:
    """Return all boxes, each after the boxes above it."""
    missing = [len(uppers) for uppers in above]
    order = [box for box, count in enumerate(missing) if not count]
    for box in order:
        for lower in below[box]:
            missing[lower] -= 1
            if not missing[lower]:
                order.append(lower)
    return order


def _net(sizes: Sequence[BoxSize], edges: Sequence[Edge], row_of: Sequence[int]) -> _Net:
    """Split edges that pass rows into links; edges from one upper box share lanes."""
    rows: list[list[int]] = [[] for _ in range(max(row_of) + 1)]
    for box, row in enumerate(row_of):
        rows[row].append(box)
    widths = [size.width for size in sizes]
    lanes: dict[tuple[int, int], int] = {}
    links: dict[tuple[int, int], list[Edge]] = {}
    for lower, upper in edges:
        last = upper
        for row in range(row_of[upper] + 1, row_of[lower]):
            if (upper, row) not in lanes:
                lanes[upper, row] = len(widths)
                rows[row].append(len(widths))
                widths.append(LANE)
            links.setdefault((last, lanes[upper, row]), []).append((lower, upper))
            last = lanes[upper, row]
        links.setdefault((last, lower), []).append((lower, upper))
    ups: list[list[int]] = [[] for _ in widths]
    downs: list[list[int]] = [[] for _ in widths]
    for up, down in links:
        ups[down].append(up)
        downs[up].append(down)
    return _Net(rows, widths, len(sizes), links, ups, downs)


def _untangle(net: _Net) -> None:
    """Order each row by the mean of its neighbours, alternating directions; keep the best order."""
    best = [list(row) for row in net.rows]
    fewest = _crossings(net)
    for sweep in range(ORDER_SWEEPS):
        if sweep % 2:
            _sort_rows(net, range(len(net.rows) - 2, -1, -1), net.downs)
        else:
            _sort_rows(net, range(1, len(net.rows)), net.ups)
        crossings = _crossings(net)
        if crossings <= fewest:
            fewest, best = crossings, [list(row) for row in net.rows]
    net.rows[:] = best


def _sort_rows(net: _Net, order: Iterable[int], neighbours: Sequence[Sequence[int]]) -> None:
    """Sort rows by the relative position of their neighbours in the adjacent row."""
    place = {v: (i + 0.5) / len(row) for row in net.rows for i, v in enumerate(row)}
    for number in order:
        row = net.rows[number]
        targets = {v: _mean([place[n] for n in neighbours[v]], place[v]) for v in row}
        row.sort(key=lambda v: targets[v])
        groups = [_lane_inside(net, tied, number) for _, tied in groupby(row, key=targets.get)]
        row[:] = [v for group in groups for v in group]
        place.update((v, (i + 0.5) / len(row)) for i, v in enumerate(row))


def _lane_inside(net: _Net, tied: Iterable[int], row: int) -> list[int]:
    """Put lanes between the boxes of a tie; at the side they would drift further in each row."""
    vertices = list(tied)
    boxes = [v for v in vertices if v < net.boxes]
    half = (len(boxes) + row % 2) // 2
    return [*boxes[:half], *(v for v in vertices if v >= net.boxes), *boxes[half:]]


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(net: _Net) -> int:
    """Return the number of pairs of links that cross."""
    count = 0
    place = {v: i for row in net.rows for i, v in enumerate(row)}
    for row in net.rows[:-1]:
        previous_ends: list[int] = []
        for upper in row:
            ends = [place[lower] for lower in net.downs[upper]]
            count += sum(len(previous_ends) - bisect_right(previous_ends, end) for end in ends)
            for end in ends:
                insort(previous_ends, end)
    return count


def _centres(net: _Net) -> list[float]:
    """Return the horizontal centre of each vertex: near its neighbours, without overlap."""
    centres = [0.0] * len(net.widths)
    for row in net.rows:
        _settle(net, row, [0.0] * len(row), centres)
    for sweep in range(PLACE_SWEEPS):
        for row in net.rows if sweep % 2 else reversed(net.rows):
            _settle(net, row, [_target_position(net, v, centres) for v in row], centres)
    left = min(centres[v] - width / 2 for v, width in enumerate(net.widths))
    return [centre - left for centre in centres]


def _target_position(net: _Net, vertex: int, centres: Sequence[float]) -> float:
    """Return the weighted mean of the neighbours; two lanes have the largest weight."""
    total = pull = 0.0
    for other in (*net.ups[vertex], *net.downs[vertex]):
        lanes = (vertex >= net.boxes) + (other >= net.boxes)
        weight = (1.0, 2.0, 8.0)[lanes]
        total += weight * centres[other]
        pull += weight
    return total / pull if pull else centres[vertex]


def _settle(
    net: _Net, row: Sequence[int], target_positions: Sequence[float], centres: list[float]
) -> None:
    """Move the vertices of a row to the positions nearest to their targets, keeping order and gaps.

    Least squares under fixed gaps is isotonic regression after the gaps are subtracted: vertices
    that are too close become one block at the mean of their targets.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        gap = BOX_GAP if max(left, right) < net.boxes else LANE
        offsets.append(offsets[-1] + (net.widths[left] + net.widths[right]) / 2 + gap)
    blocks: list[tuple[float, int]] = []
    for target, offset in zip(target_positions, offsets, strict=True):
        mean, count = target - offset, 1
        while blocks and blocks[-1][0] >= mean:
            before, members = blocks.pop()
            mean = (before * members + mean * count) / (members + count)
            count += members
        blocks.append((mean, count))
    settled = [mean for mean, count in blocks for _ in range(count)]
    for vertex, place, offset in zip(row, settled, offsets, strict=True):
        centres[vertex] = place + offset


def _route(net: _Net, sizes: Sequence[BoxSize], centres: Sequence[float]) -> DiagramLayout:
    """Stack the rows and route every link through the space between two rows."""
    tops, bottoms = _bands(net, sizes)
    row_of = {v: number for number, row in enumerate(net.rows) for v in row}
    leaving = _ports(net, centres, net.downs)
    arriving = _ports(net, centres, net.ups)
    lines = []
    for (up, down), edges in net.links.items():
        row = row_of[up]
        start = tops[row] + sizes[up].height if up < net.boxes else bottoms[row]
        x, end = leaving[up, down], arriving[down, up]
        lines.append(
            EdgeSegment((x, start), (x, bottoms[row]), (end, tops[row + 1]), tuple(edges)),
        )
        if down >= net.boxes:
            through = (centres[down], tops[row + 1]), (centres[down], bottoms[row + 1])
            lines.append(EdgeSegment(through[0], through[1], through[1], tuple(edges)))
    corners = tuple(
        (centres[box] - size.width / 2, tops[row_of[box]]) for box, size in enumerate(sizes)
    )
    width = max(centre + w / 2 for centre, w in zip(centres, net.widths, strict=True))
    return DiagramLayout(corners, tuple(lines), width, bottoms[-1])


def _bands(net: _Net, sizes: Sequence[BoxSize]) -> tuple[list[float], list[float]]:
    """Return the top and bottom of each row; more lines between two rows give a larger gap."""
    tops, bottoms = [], []
    top = 0.0
    for row in net.rows:
        tops.append(top)
        bottoms.append(top + max(sizes[v].height for v in row if v < net.boxes))
        room = ROW_GAP + ROOM_PER_LINE * sum(len(net.downs[v]) for v in row)
        top = bottoms[-1] + min(room, MAX_ROW_GAP)
    return tops, bottoms


def _ports(
    net: _Net, centres: Sequence[float], neighbours: Sequence[Sequence[int]]
) -> dict[tuple[int, int], float]:
    """Return where lines leave or reach each box: side by side, in the order of the other ends."""
    ports = {}
    other_end: Callable[[int], float] = centres.__getitem__
    for vertex, others in enumerate(neighbours):
        wide = net.widths[vertex] * 0.7 if vertex < net.boxes else 0.0
        step = min(LANE, wide / max(1, len(others) - 1))
        first = centres[vertex] - step * (len(others) - 1) / 2
        for position, other in enumerate(sorted(others, key=other_end)):
            ports[vertex, other] = first + step * position
    return ports
