"""The examples of docs/integrations, as the pages show them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "integrations"


def run_example(page: str, **given: Any) -> dict[str, Any]:
    """Run the first Python block of a page with what it takes as given; what it then knows."""
    text = (PAGES / f"{page}.md").read_text("utf-8")
    found = re.search(r"```python\n(.+?)```", text, re.DOTALL)
    assert found is not None, f"{page} has no example"
    names = dict(given)
    exec(compile(found.group(1), f"{page}.md", "exec"), names)
    return names
