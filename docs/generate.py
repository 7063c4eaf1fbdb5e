"""Generate the reference pages and the JSON Schema from the code.

`python docs/generate.py` writes all pages. `python docs/generate.py --check` only prints the pages
that are out of date, and exits with 1 if there are any. The output depends on the code alone: it
contains no paths, dates or other values of the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for `docs.generator`

from docs.generator.diagnostics_page import diagnostics_page  # noqa: E402
from docs.generator.reference_pages import (  # noqa: E402
    api_page,
    commands_page,
    modules_page,
    schema_text,
)

_NOTE = "<!-- Written by docs/generate.py. Do not edit. -->\n\n"

PAGES: dict[str, Callable[[], str]] = {
    "docs/modules.md": modules_page,
    "docs/diagnostics.md": diagnostics_page,
    "docs/commands.md": commands_page,
    "docs/http-api.md": api_page,
    "src/dpolicy/policy/policy.schema.json": schema_text,
}


def main(arguments: list[str]) -> int:
    """Write the pages that changed, or only list them with `--check`. Return the exit code."""
    check = "--check" in arguments
    stale = False
    for name, generate in PAGES.items():
        path = ROOT / name
        text = generate() if path.suffix == ".json" else _NOTE + generate()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale = True
        if not check:
            path.write_text(text, "utf-8")
        print(f"{'stale' if check else 'wrote'}: {name}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
