"""Output format of the running command."""

from __future__ import annotations


class OutputFormat:
    """Format of the running command, kept in the click context for the error handler.

    It is no dataclass, so that `dpolicy --help` need not import `dataclasses`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str = "text") -> None:
        self.name = name
