"""The pages that are made from the code are fresh, and say nothing about the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "docs" / "generate.py"
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_pages_are_fresh() -> None:
    done = run("--check")
    assert done.returncode == 0, f"run docs/generate.py\n{done.stdout}{done.stderr}"


def test_the_pages_hold_no_paths_of_a_machine() -> None:
    for name in ("diagnostics.md", "commands.md"):
        page = (ROOT / "docs" / name).read_text("utf-8")
        for path in (str(ROOT), str(Path.home()), "/tmp/"):
            assert path not in page
