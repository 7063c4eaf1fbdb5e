"""A path → the type of its file system, and whether a ledger may live there.

SQLite's locks and shared memory do not work over a network, whatever it says, and FUSE may be
anything. Both are refused. Only Linux tells the type; elsewhere nothing is refused.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dpolicy.errors import LedgerUnavailable

#: Types without locks, shared memory or syncing that a ledger could rely on.
REFUSED = frozenset(
    re.findall(
        r"\S+",
        "nfs nfs4 cifs smb3 smbfs ncpfs 9p afs ceph coda lustre gpfs glusterfs beegfs orangefs "
        "pvfs2 gfs2 ocfs2 virtiofs vboxsf vmhgfs prl_fs drvfs",
    )
)

MOUNTS = Path("/proc/self/mountinfo")


def check_file_system(folder: Path) -> None:
    """Raise `LedgerUnavailable` if a ledger in a folder could not be kept safe."""
    if not sys.platform.startswith("linux"):
        return
    try:
        kind = file_system(folder, MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError as error:
        raise LedgerUnavailable(
            f"cannot tell which file system `{folder}` is on: {error.strerror}\n"
            "help: mount /proc, or keep the ledger in PostgreSQL"
        ) from error
    if kind in REFUSED or kind.split(".")[0] in {"fuse", "fuseblk"}:
        raise LedgerUnavailable(
            f"`{folder}` is on a `{kind}` file system, where locks and syncs cannot be relied on\n"
            "help: keep the ledger on a local disk, or in PostgreSQL"
        )


def file_system(folder: Path, mounts: str) -> str:
    """The type of the mount that is nearest above a folder; the later of two at one place."""
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        place = Path(_unescaped(fields[4]))
        if folder.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), after.split(" ")[0]
    return kind


def _unescaped(place: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), place)
