"""Fenced blocks of Markdown pages, and the commands with their printed output in them.

A page is a session. Its blocks run in order, in one empty directory:

    console     commands after `$ `, each with the lines that it prints
    sh          commands that must succeed; their output is not on the page
    python      code; it shares its variables with the earlier blocks of the page
    pycon       a Python session: statements after `>>> `, each with what it prints
    text, yaml, json   after `<!-- output -->`: what the block before printed;
                       after `<!-- file: NAME -->`: a file of the session;
                       after `<!-- part: NAME -->`: the next part of a file

Commands after `<!-- long: REASON -->` do not run; they must exist and have the options. A block
without a language, or a console block without a command, fails.

In an output, `…` stands for any text of a line, and a line `…` for any lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(
    r"(?:^<!-- (?P<directive>[^\n]+?) -->\n)?^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, first line, and the comment before it."""

    language: str
    text: str
    line: int
    directive: str


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that the page prints below it."""

    text: str
    output: str


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], match["text"], line, match["directive"] or "")


def read_commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console or sh block; a trailing backslash continues a line."""
    if block.language == "sh":
        for line in block.text.replace("\\\n", "").splitlines():
            yield Command(line, "")
        return
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not before, f"line {block.line}: a console block begins with `$ `"
    for part in parts:
        command, output = _split_command(part)
        yield Command(command, output)


def _split_command(part: str) -> tuple[str, str]:
    """Return the command, which ends at a line without an open quote or backslash, and the rest."""
    lines = part.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        command = "".join(lines[:count])
        is_complete = command.count("'") % 2 == 0 and not command.rstrip("\n").endswith("\\")
        if is_complete:
            return command.rstrip("\n"), "".join(lines[count:])
    return part, ""


def is_output(expected: str, printed: str) -> bool:
    """Return whether a text was printed, with `…` for what is left out."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else _line_pattern(line) + r"[ ]*\n"
        for line in expected.splitlines()
    )
    text = printed if printed.endswith("\n") or not printed else printed + "\n"
    return re.fullmatch(pattern, text) is not None


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split("…"))
