"""Archive: ids, statuses and records of many releases in columns; immutable.

A long ledger has many releases and few of them are read. An entry of the archive takes about 49
bytes with its id, and a snapshot stores the columns as they are. An id is looked up by its hash;
the id itself is compared too, so ids with equal hashes are distinct.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Statuses of a release. Only `reserved` changes: to voided, committed or expired.
ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED = (
    "allowed",
    "denied",
    "reserved",
    "voided",
    "committed",
)
EXPIRED, IMPORTED = "expired", "imported"

#: All statuses; a column stores positions in this tuple.
STATUSES = (ALLOWED, DENIED, RESERVED, VOIDED, COMMITTED, EXPIRED, IMPORTED)

#: Statuses of releases that are charged: all except denied and voided.
SPENDING_STATUSES = frozenset({ALLOWED, RESERVED, COMMITTED, EXPIRED, IMPORTED})

_STATUS_NUMBERS = {status: number for number, status in enumerate(STATUSES)}
#: Number of ids that are hashed at a time.
_CHUNK = 65_536
_IS_SPENDING = np.array([status in SPENDING_STATUSES for status in STATUSES])


class ReleaseEntry(NamedTuple):
    """Status of a release, the records of its request and its charge, and its charge group."""

    status: str
    request_record: int
    charge_record: int
    charge_group: int


#: A column of numbers ≥ 0, in the smallest type that holds them.
Column = NDArray[Any]


class ReleaseArchive:
    """Releases in ledger order, by position and by id. Immutable."""

    def __init__(
        self, ids: bytes, columns: Mapping[str, Column], hashes: NDArray[np.int64]
    ) -> None:
        """Take over columns, which have an item for each release.

        `ids` are UTF-8 one after the other. The columns are `ends` (where each id ends), `status`
        (a position in `STATUSES`), `request` and `later` (the record of the request, and how many
        records later the charge is) and `group`. `hashes` are those of `_hash_id`.
        """
        self._ids, self._columns, self._hashes = ids, columns, hashes
        names = ("ends", "status", "request", "later", "group")
        self._ends, self._status, self._request, self._later, self._group = (
            columns[name].data for name in names
        )
        order = np.argsort(hashes, kind="stable")
        self._order = _shrink(order).data
        self._sorted_hashes = hashes[order].data

    def __len__(self) -> int:
        return len(self._ends)

    def find(self, release: str) -> int | None:
        """Return the position of a release; None if the archive does not have it."""
        hashes, number = self._sorted_hashes, _hash_id(release)
        place = bisect_left(hashes, number)
        while place < len(hashes) and hashes[place] == number:
            position: int = self._order[place]
            if self.release(position) == release:
                return position
            place += 1
        return None

    def entry(self, position: int) -> ReleaseEntry:
        """Return the entry at a position."""
        request = self._request[position]
        return ReleaseEntry(
            STATUSES[self._status[position]],
            request,
            request + self._later[position],
            self._group[position],
        )

    def release(self, position: int) -> str:
        """Return the id at a position."""
        start = self._ends[position - 1] if position else 0
        return self._ids[start : self._ends[position]].decode("utf-8", "surrogatepass")

    def count_by_group(self, groups: int) -> NDArray[np.intp]:
        """Return the number of charged releases of each charge group."""
        is_charged = _IS_SPENDING[self._columns["status"]]
        return np.bincount(self._columns["group"][is_charged], minlength=groups)

    def positions_in_group(self, group: int) -> list[int]:
        """Return the positions of the charged releases of a charge group, in ledger order."""
        positions, groups = self._charged_by_group
        first, last = np.searchsorted(groups, (group, group + 1)).tolist()
        charged: list[int] = positions[first:last].tolist()
        return charged

    @cached_property
    def _charged_by_group(self) -> tuple[Column, Column]:
        """Positions of charged releases, sorted by charge group, and these groups."""
        charged = np.flatnonzero(_IS_SPENDING[self._columns["status"]])
        groups = self._columns["group"][charged]
        order = np.argsort(groups, kind="stable")
        return _shrink(charged[order]), groups[order]

    def extend(
        self, changed: Mapping[int, ReleaseEntry], added: Mapping[str, ReleaseEntry]
    ) -> ReleaseArchive:
        """Return an archive with other entries at some positions, and more releases."""
        texts = [release.encode("utf-8", "surrogatepass") for release in added]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        status, request, charge, group = zip(*added.values(), strict=True) if added else ((),) * 4
        later = np.array(charge, np.int64) - np.array(request, np.int64)
        more = {
            "ends": len(self._ids) + np.cumsum(lengths),
            "status": [_STATUS_NUMBERS[name] for name in status],
            "request": request,
            "later": later,
            "group": group,
        }
        columns = {
            name: np.concatenate([self._columns[name], np.array(more[name], np.int64)])
            for name in self._columns
        }
        for position, entry in changed.items():
            columns["status"][position] = _STATUS_NUMBERS[entry.status]
            columns["request"][position] = entry.request_record
            columns["later"][position] = entry.charge_record - entry.request_record
            columns["group"][position] = entry.charge_group
        hashes = np.fromiter(map(_hash_id, added), np.int64, len(added))
        shrunk = {name: _shrink(column) for name, column in columns.items()}
        ids = b"".join([self._ids, *texts])
        return ReleaseArchive(ids, shrunk, np.concatenate([self._hashes, hashes]))

    def to_arrays(self) -> dict[str, Column]:
        """Return the columns for a snapshot."""
        return {"ids": np.frombuffer(self._ids, np.uint8), **self._columns}

    @staticmethod
    def from_arrays(arrays: Any) -> ReleaseArchive:
        """Return the archive of columns. Raise `ValueError` if they do not fit together."""
        columns: dict[str, Column] = {name: arrays[name] for name in EMPTY_ARCHIVE._columns}
        ids, ends = arrays["ids"].tobytes(), columns["ends"]
        fits = all(
            column.dtype.kind == "u" and column.shape == ends.shape for column in columns.values()
        )
        if fits and len(ends):
            fits = (
                bool((ends[1:] >= ends[:-1]).all())
                and int(ends[-1]) == len(ids)
                and int(columns["status"].max()) < len(STATUSES)
            )
        if not fits or (ids and not len(ends)):
            raise ValueError("the columns of the releases do not fit together")
        return ReleaseArchive(ids, columns, _hash_ids(ids, ends))


#: The hash of an id. It differs between processes, so that no client can choose it.
_hash_id: Callable[[str], int] = hash


def _hash_ids(ids: bytes, ends: Column) -> NDArray[np.int64]:
    """Return the hashes of all ids."""
    hashes = np.empty(len(ends), np.int64)
    start = 0
    for first in range(0, len(ends), _CHUNK):
        stops = ends[first : first + _CHUNK].astype(np.int64) - start
        texts = _split_ids(ids[start : start + int(stops[-1])], stops.tolist())
        hashes[first : first + _CHUNK] = np.fromiter(map(_hash_id, texts), np.int64, len(stops))
        start += int(stops[-1])
    return hashes


def _split_ids(ids: bytes, stops: list[int]) -> Iterator[str]:
    """Return the ids that end at `stops`; quicker if all are ASCII."""
    slices = map(slice, [0, *stops[:-1]], stops)
    if ids.isascii():
        return map(ids.decode("ascii").__getitem__, slices)
    return (ids[part].decode("utf-8", "surrogatepass") for part in slices)


def _shrink(column: NDArray[Any]) -> Column:
    """Return a column of numbers ≥ 0 in the smallest type that holds them."""
    largest = int(column.max()) if len(column) else 0
    return column.astype(np.min_scalar_type(largest))


#: The archive of a ledger without releases.
EMPTY_ARCHIVE = ReleaseArchive(
    b"",
    {name: np.zeros(0, np.uint8) for name in ("ends", "status", "request", "later", "group")},
    np.zeros(0, np.int64),
)
