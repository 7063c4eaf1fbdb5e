"""Examples on the pages of docs/integrations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "integrations"


def run_example(page: str, **names: Any) -> dict[str, Any]:
    """Run the first Python block of a page with these names; return its variables."""
    text = (PAGES / f"{page}.md").read_text("utf-8")
    block = re.search(r"```python\n(.+?)```", text, re.DOTALL)
    assert block is not None, f"{page} has no example"
    variables = dict(names)
    exec(compile(block.group(1), f"{page}.md", "exec"), variables)
    return variables
