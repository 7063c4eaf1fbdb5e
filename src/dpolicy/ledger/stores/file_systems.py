"""Check that the file system of a path is safe for a ledger.

The locks and the shared memory of SQLite do not work reliably on a network file system, even where
the file system reports success, and a FUSE file system may behave in any way. Both are refused. The
type of a file system is known on Linux only; other systems are not checked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dpolicy.errors import LedgerUnavailable

#: Types whose locks, shared memory or syncs are not reliable.
REFUSED = frozenset(
    re.findall(
        r"\S+",
        "nfs nfs4 cifs smb3 smbfs ncpfs 9p afs ceph coda lustre gpfs glusterfs beegfs orangefs "
        "pvfs2 gfs2 ocfs2 virtiofs vboxsf vmhgfs prl_fs drvfs",
    )
)

MOUNTS = Path("/proc/self/mountinfo")


def check_file_system(folder: Path) -> None:
    """Raise `LedgerUnavailable` if the file system of a folder is not safe for a ledger."""
    if not sys.platform.startswith("linux"):
        return
    try:
        kind = file_system(folder, MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError as error:
        raise LedgerUnavailable(
            f"cannot determine the file system of `{folder}`: {error.strerror}\n"
            "help: mount /proc, or keep the ledger in PostgreSQL"
        ) from error
    if kind in REFUSED or kind.split(".")[0] in {"fuse", "fuseblk"}:
        raise LedgerUnavailable(
            f"`{folder}` is on a `{kind}` file system, whose locks and syncs are not reliable\n"
            "help: keep the ledger on a local disk, or in PostgreSQL"
        )


def file_system(folder: Path, mounts: str) -> str:
    """Return the type of the innermost mount that contains a folder; the last one if several
    are mounted at the same path.
    """
    depth, kind = -1, "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount = Path(_unescape(fields[4]))
        if folder.is_relative_to(mount) and len(mount.parts) >= depth:
            depth, kind = len(mount.parts), after.split(" ")[0]
    return kind


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)
