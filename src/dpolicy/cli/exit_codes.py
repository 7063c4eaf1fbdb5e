"""Exit codes of every command (docs/commands.md)."""

from __future__ import annotations

FAILURE, DENIED, REJECTED, CASE_FAILED, TAMPERED, UNDECIDED, USAGE = 1, 2, 3, 4, 5, 6, 64
