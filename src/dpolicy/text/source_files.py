"""Text files with a size limit, read as sources."""

from __future__ import annotations

from pathlib import Path

from dpolicy.text.yaml_reader import (
    MAX_BYTES,
    Source,
)


def read_source(file: Path) -> Source:
    """Read at most `MAX_BYTES` + 1 bytes of a file, without its byte order mark.

    Bytes that are not UTF-8 become surrogate escapes; `read_nodes` reports them.
    """
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    text = content.decode("utf-8", errors="surrogateescape")
    return Source(str(file), text.removeprefix("\ufeff"))
