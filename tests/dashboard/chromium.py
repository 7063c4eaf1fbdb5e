"""Chromium for tests: the browser of the machine, installed as a package if it is missing.

`python -m tests.dashboard.chromium` installs it before the tests. Only root can install packages;
for other users the tests fail with an instruction.
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

#: Names of the executable on different systems.
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
#: Options that disable background requests of the browser.
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
    """Return the path of Chromium; install it if it is missing and the user is root."""
    path = _find_executable()
    if path is None and shutil.which("apt-get") and os.geteuid() == 0:
        _install()
        path = _find_executable()
    if path is None:
        raise RuntimeError("browser tests need Chromium: install the package `chromium`")
    return path


def _install() -> None:
    """Install Chromium; a lock lets parallel test processes wait for the first one."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (Path(gettempdir()) / "dpolicy-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for arguments in (["update", "-qq"], ["install", "-qqy", "chromium", "fonts-inter"]):
            if _find_executable() is None:
                command = ["apt-get", *arguments]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _find_executable() -> str | None:
    paths = (shutil.which(name) for name in NAMES)
    return next((path for path in paths if path), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser without a window."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


if __name__ == "__main__":
    print(executable())
    sys.exit(0)
