"""The table of releases behaves like a map, with and without an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.errors import InvariantBroken
from dpolicy.pdp.state import release_archive
from dpolicy.pdp.state.release_archive import (
    EMPTY_ARCHIVE,
    SPENDING_STATUSES,
    STATUSES,
    ReleaseArchive,
    ReleaseEntry,
)
from dpolicy.pdp.state.release_table import ReleaseTable

IDS = st.sampled_from(["a", "b", "ä", "", "ab", "abc", "\ud800", "x" * 300]) | st.text(max_size=3)
ENTRIES = st.builds(
    ReleaseEntry,
    st.sampled_from(STATUSES),
    st.integers(1, 2**40),
    st.integers(2**40, 2**41),
    st.integers(0, 3),
)
#: A release with its entry, or None for moving all releases to the archive.
STEPS = st.lists(st.none() | st.tuples(IDS, ENTRIES), max_size=30)


def build(steps: list[tuple[str, ReleaseEntry] | None]) -> tuple[ReleaseTable, dict[str, Any]]:
    """Return a table and a map after the same steps."""
    table, model = ReleaseTable(), dict[str, ReleaseEntry]()
    for step in steps:
        if step is None:
            table.archive()
            continue
        release, entry = step
        assert table.add_new(release, entry) == (release not in model)
        table[release] = model[release] = entry
    return table, model


def check_same(table: ReleaseTable, model: dict[str, ReleaseEntry]) -> None:
    assert list(table) == list(model)
    assert list(reversed(table)) == list(reversed(model))
    assert list(table.items()) == list(model.items())
    assert list(reversed(table.items())) == list(reversed(model.items()))
    assert list(table.values()) == list(model.values())
    assert len(table) == len(model)
    for release in (*model, "absent"):
        assert (release in table) == (release in model)
        assert table.get(release) == model.get(release)


@given(STEPS)
def test_a_table_is_a_map_in_ledger_order(steps: list[tuple[str, ReleaseEntry] | None]) -> None:
    table, model = build(steps)
    check_same(table, model)
    copy = table.copy()
    table["later"] = ReleaseEntry("allowed", 1, 1, 0)
    check_same(copy, model)


def test_ids_with_equal_hashes_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_archive, "_hash_id", lambda release: 7)
    entry = ReleaseEntry("allowed", 1, 1, 0)
    check_same(*build([("a", entry), ("b", entry), None, ("c", entry), None, ("b", entry)]))


@given(STEPS)
def test_an_archive_gives_the_charged_releases_of_a_group(
    steps: list[tuple[str, ReleaseEntry] | None],
) -> None:
    table, model = build(steps)
    archive = table.archive()
    for group in range(4):
        charged = [
            release
            for release, entry in model.items()
            if entry.charge_group == group and entry.status in SPENDING_STATUSES
        ]
        assert list(table.charged_in_group(group, [])) == charged
        assert archive.count_by_group(4)[group] == len(charged)


def test_a_release_that_left_its_group_and_came_back_counts_once() -> None:
    table = ReleaseTable()
    table["a"] = ReleaseEntry("imported", 1, 1, 0)
    table.archive()
    table["a"] = ReleaseEntry("imported", 1, 2, 1)
    assert list(table.charged_in_group(0, [])) == []
    assert list(table.charged_in_group(1, ["a"])) == ["a"]
    table["a"] = ReleaseEntry("imported", 1, 3, 0)
    assert list(table.charged_in_group(0, ["a"])) == ["a"]
    assert list(table.charged_in_group(1, ["a"])) == []


@given(STEPS)
def test_columns_of_a_snapshot_give_the_archive_back(
    steps: list[tuple[str, ReleaseEntry] | None],
) -> None:
    table, model = build(steps)
    check_same(ReleaseTable(ReleaseArchive.from_arrays(table.archive().to_arrays())), model)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ids", lambda column: column[:-1]),
        ("ends", lambda column: column + 1),
        ("ends", lambda column: column[::-1]),
        ("ends", lambda column: column[:-1]),
        ("request", lambda column: column.astype(np.float64)),
        ("later", lambda column: column.astype(np.int8)),
        ("group", lambda column: column.reshape(3, 3)),
        ("status", lambda column: column + 100),
        ("request", lambda column: column[:-1]),
        ("later", lambda column: column[:-1]),
        ("group", lambda column: column[:-1]),
    ],
)
def test_columns_that_do_not_fit_are_refused(name: str, damage: Callable[[Any], Any]) -> None:
    table = ReleaseTable()
    for number in range(9):
        table[f"r{number}"] = ReleaseEntry("allowed", number + 1, number + 1, number % 2)
    arrays = table.archive().to_arrays()
    arrays[name] = damage(arrays[name])
    with pytest.raises(ValueError, match=r"."):
        ReleaseArchive.from_arrays(arrays)


def test_a_release_is_never_removed() -> None:
    table = ReleaseTable()
    table["a"] = ReleaseEntry("allowed", 1, 1, 0)
    with pytest.raises(InvariantBroken, match="never removed"):
        del table["a"]
    assert len(EMPTY_ARCHIVE) == 0
