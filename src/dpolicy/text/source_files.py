"""Text files with a size limit, read as sources."""

from __future__ import annotations

from pathlib import Path

from dpolicy.text.yaml_reader import (
    MAX_BYTES,
    Source,
)


def read_source(file: Path) -> Source:
    """The text of a file; bytes that are not UTF-8 are kept as marks, which `read_nodes` tells."""
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    text = content.decode("utf-8", errors="surrogateescape")
    return Source(str(file), text.removeprefix("\ufeff"))
