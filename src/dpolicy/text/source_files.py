"""Text files with a size limit, read as sources."""

from __future__ import annotations

from errno import ENOENT
from os import PathLike
from pathlib import Path

from dpolicy.errors import FileMissing, FileUnreadable, InvalidValue
from dpolicy.text.yaml_reader import (
    MAX_BYTES,
    Source,
)


def to_path(value: object) -> Path:
    """Return the path of a file. Raise `InvalidValue` if the value is neither text nor a path."""
    if isinstance(value, str | PathLike):
        return Path(value)
    message = f"expected the path of a file, got a value of the type `{type(value).__name__}`"
    raise InvalidValue("P007", f"{message}; help: give a text or a `Path`")


def read_source(file: Path) -> Source:
    """Read at most `MAX_BYTES` + 1 bytes of a file, without its byte order mark.

    Bytes that are not UTF-8 become surrogate escapes; `read_nodes` reports them. Raise
    `FileUnreadable` if the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable_file_error(error, file) from None
    except ValueError:  # the path has a null character
        raise FileMissing(ENOENT, "no file can have this path", repr(str(file))) from None
    text = content.decode("utf-8", errors="surrogateescape")
    return Source(str(file), text.removeprefix("\ufeff"))


def unreadable_file_error(error: OSError, file: Path) -> FileUnreadable:
    """Return the error of dpolicy for an error of the operating system."""
    kind = FileMissing if isinstance(error, FileNotFoundError) else FileUnreadable
    return kind(error.errno, error.strerror, str(file))
