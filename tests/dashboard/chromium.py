"""A real browser for tests: the machine's Chromium, installed as a package where it is missing.

`python -m tests.dashboard.chromium` installs it ahead of the tests. Only root can install packages; for
anybody else the tests say what to do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

from playwright.sync_api import Browser, sync_playwright

#: The names under which systems have it.
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
#: A browser that asks nobody anything by itself.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
)


def executable() -> str:
    """Where Chromium is."""
    found = _found()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        _install()
        found = _found()
    if found is None:
        raise RuntimeError("browser tests need Chromium: install the package `chromium`")
    return found


def _install() -> None:
    """One of the tests that run at once installs it, the others wait."""
    unasked = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (Path(gettempdir()) / "dpolicy-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (["update", "-qq"], ["install", "-qqy", "chromium", "fonts-inter"]):
            if _found() is None:
                command = ["apt-get", *words]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=unasked)


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser without a window."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


if __name__ == "__main__":
    print(executable())
    sys.exit(0)
