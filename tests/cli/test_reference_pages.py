"""The generated pages are up to date and contain no path of a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run_generator(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "docs" / "generate.py"
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_pages_are_up_to_date() -> None:
    process = run_generator("--check")
    assert process.returncode == 0, f"run docs/generate.py\n{process.stdout}{process.stderr}"


def test_the_pages_contain_no_machine_paths() -> None:
    for name in ("diagnostics.md", "commands.md"):
        page = (ROOT / "docs" / name).read_text("utf-8")
        for path in (str(ROOT), str(Path.home()), "/tmp/"):
            assert path not in page
