"""Page of all diagnostic codes, each with an example and the output of the example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from docs.generator.code_families import FAMILIES, CodeFamily, severity
from docs.generator.examples import (
    CommandResult,
    Example,
    example_code,
    example_names,
    load_example,
    load_shared_files,
    run_example,
)

_LANGUAGES = {"json": "json", "py": "python", "yaml": "yaml"}

_INTRODUCTION = """\
dpolicy reports all problems of a file together: file, line and column, the line with the position
underlined, a stable code, and help if there is a known remedy. It stops after 100 errors. Problems
that have no position in a file are reported with the code and a message.

An error stops a command with exit code 3; for P047, M019, U001, U002, Q001, Q002, Q003, Q004 and
Q005 the exit code is 64. A warning does not stop a command. Every example below runs when this page
is generated.
"""


def diagnostics_page() -> str:
    """Return the page: an introduction, then each family with a table and a section per code."""
    names = {example_code(name): name for name in reversed(example_names())}
    lines = ["# Diagnostics", "", _INTRODUCTION]
    lines += [f"- [{family.heading}](#{_anchor(family.heading)})" for family in FAMILIES]
    headings: dict[str, str] = {}
    for family in FAMILIES:
        lines += ["", f"## {family.heading}", "", family.introduction, ""]
        lines += _table(family)
        lines += _shared_part(family, headings)
        for code in family.titles:
            lines += _section(code, family, names.get(code))
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def _table(family: CodeFamily) -> Iterator[str]:
    yield "| code | severity | title |"
    yield "|---|---|---|"
    for code, title in family.titles.items():
        yield f"| [{code}](#{code.lower()}) | {severity(code)} | {title} |"


def _shared_part(family: CodeFamily, headings: dict[str, str]) -> Iterator[str]:
    """Yield the shared files and the setup of a family.

    `headings` maps each file to the family that shows it, and is extended: a later family links to
    the file instead.
    """
    files = load_shared_files(family)
    if not files:
        return
    yield ""
    links = [f"[`{name}`](#{_anchor(headings[name])})" for name in files if name in headings]
    new_files = {name: text for name, text in files.items() if name not in headings}
    nouns = " and ".join([*links, "these files"] if new_files else links)
    yield f"The examples use {nouns}{':' if new_files else '.'}"
    yield from _files(new_files, with_names=True)
    headings.update(dict.fromkeys(new_files, family.heading))
    if family.setup:
        yield ""
        yield "This command activates the policy before each example:"
        yield from _console(run_example(Example({}, family.setup, files, ())))


def _section(code: str, family: CodeFamily, name: str | None) -> Iterator[str]:
    title = family.titles[code]
    explanation = family.explanations.get(code, "")
    yield ""
    yield f"### {code}"
    yield ""
    yield f"**{title[:1].upper()}{title[1:]}.** {explanation}".rstrip()
    if name is not None:
        example = load_example(name, family)
        yield from _files(example.files, with_names=len(example.files) > 1)
        yield from _console(run_example(example))


def _files(files: Mapping[str, str], with_names: bool) -> Iterator[str]:
    for name, text in files.items():
        yield from ("", f"`{name}`:") if with_names else ()
        language = _LANGUAGES[name.rpartition(".")[2]]
        yield from ("", f"```{language}", text.rstrip("\n"), "```")


def _console(results: Iterable[CommandResult]) -> Iterator[str]:
    yield ""
    yield "```console"
    for result in results:
        yield f"$ {result.command}"
        yield from [result.output] if result.output else []
    yield "```"
