"""Table of all releases by id: an archive, and what came or changed since it was made."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView

from dpolicy.errors import InvariantBroken
from dpolicy.pdp.state.release_archive import (
    EMPTY_ARCHIVE,
    SPENDING_STATUSES,
    ReleaseArchive,
    ReleaseEntry,
)

#: Least number of new releases that are moved to the archive.
MIN_ARCHIVED_RELEASES = 50_000


class ReleaseTable(MutableMapping[str, ReleaseEntry]):
    """Entries of releases in ledger order. Mutable; no release is ever removed.

    Several tables may share an archive.
    """

    __slots__ = ("_added", "_archive", "_changed")

    def __init__(self, archive: ReleaseArchive = EMPTY_ARCHIVE) -> None:
        self._archive = archive
        self._changed: dict[int, ReleaseEntry] = {}
        self._added: dict[str, ReleaseEntry] = {}

    @property
    def recent_count(self) -> int:
        """Number of releases that are not in the archive."""
        return len(self._added)

    @property
    def has_many_recent(self) -> bool:
        """Whether a third of the releases, and not few, are not in the archive."""
        return len(self._added) >= max(MIN_ARCHIVED_RELEASES, len(self) // 3)

    def copy(self) -> ReleaseTable:
        """Return an independent table with the same archive."""
        other = ReleaseTable(self._archive)
        other._changed, other._added = dict(self._changed), dict(self._added)
        return other

    def __len__(self) -> int:
        return len(self._archive) + len(self._added)

    def __getitem__(self, release: str) -> ReleaseEntry:
        entry = self._added.get(release)
        if entry is not None:
            return entry
        position = self._find_archived_release(release)
        if position is None:
            raise KeyError(release)
        return self._archived_entry(position)

    def __contains__(self, release: object) -> bool:
        return release in self._added or (
            isinstance(release, str) and self._find_archived_release(release) is not None
        )

    def __setitem__(self, release: str, entry: ReleaseEntry) -> None:
        position = None if release in self._added else self._find_archived_release(release)
        if position is None:
            self._added[release] = entry
        else:
            self._changed[position] = entry

    def __delitem__(self, release: str) -> None:
        raise InvariantBroken("a release is never removed from the ledger")

    def __iter__(self) -> Iterator[str]:
        yield from map(self._archive.release, range(len(self._archive)))
        yield from self._added

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(self._added)
        yield from map(self._archive.release, reversed(range(len(self._archive))))

    def items(self) -> ReleaseItems:
        """Return ids and entries in ledger order; the view can be reversed."""
        return ReleaseItems(self)

    def values(self) -> ValuesView[ReleaseEntry]:
        """Return the entries in ledger order."""
        return _ReleaseValues(self)

    def add_new(self, release: str, entry: ReleaseEntry) -> bool:
        """Add a release; return False, and add nothing, if the table has it."""
        if release in self._added or self._find_archived_release(release) is not None:
            return False
        self._added[release] = entry
        return True

    def charged_in_group(self, group: int, recent: list[str]) -> Iterator[str]:
        """Yield the charged releases of a group; `recent` are those that joined it since the
        archive was made, some of which may have left it.
        """
        for position in self._archive.positions_in_group(group):
            entry = self._changed.get(position)
            if entry is None or _is_charged_in(entry, group):
                yield self._archive.release(position)
        for release in recent:
            if _is_charged_in(self[release], group) and not self._is_archived_in(release, group):
                yield release

    def archive(self) -> ReleaseArchive:
        """Move all releases to a new archive, and return it."""
        if self._added or self._changed:
            self._archive = self._archive.extend(self._changed, self._added)
            self._changed, self._added = {}, {}
        return self._archive

    def items_forward(self) -> Iterator[tuple[str, ReleaseEntry]]:
        """Yield ids and entries in ledger order."""
        yield from self._archived_items(range(len(self._archive)))
        yield from self._added.items()

    def items_backward(self) -> Iterator[tuple[str, ReleaseEntry]]:
        """Yield ids and entries, the newest release first."""
        yield from reversed(self._added.items())
        yield from self._archived_items(range(len(self._archive) - 1, -1, -1))

    def _archived_items(self, positions: range) -> Iterator[tuple[str, ReleaseEntry]]:
        for position in positions:
            yield self._archive.release(position), self._archived_entry(position)

    def _archived_entry(self, position: int) -> ReleaseEntry:
        return self._changed.get(position) or self._archive.entry(position)

    def _find_archived_release(self, release: str) -> int | None:
        return self._archive.find(release) if len(self._archive) else None

    def _is_archived_in(self, release: str, group: int) -> bool:
        position = None if release in self._added else self._find_archived_release(release)
        return position is not None and _is_charged_in(self._archive.entry(position), group)


class ReleaseItems(ItemsView[str, ReleaseEntry]):
    """Ids and entries of a table, without a lookup for each."""

    _mapping: ReleaseTable

    def __init__(self, table: ReleaseTable) -> None:
        super().__init__(table)

    def __iter__(self) -> Iterator[tuple[str, ReleaseEntry]]:
        return self._mapping.items_forward()

    def __reversed__(self) -> Iterator[tuple[str, ReleaseEntry]]:
        return self._mapping.items_backward()


class _ReleaseValues(ValuesView[ReleaseEntry]):
    _mapping: ReleaseTable

    def __init__(self, table: ReleaseTable) -> None:
        super().__init__(table)

    def __iter__(self) -> Iterator[ReleaseEntry]:
        return (entry for _, entry in self._mapping.items_forward())


def _is_charged_in(entry: ReleaseEntry, group: int) -> bool:
    return entry.charge_group == group and entry.status in SPENDING_STATUSES
