"""PDF of a page: a browser of this machine prints the HTML (decision 0040).

The page has no scripts and loads nothing, so the browser needs no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from dpolicy.errors import OperationRejected

#: Names of browsers that print a page without a window.
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")

#: Seconds after which the browser is stopped.
TIMEOUT = 120

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-pdf-header-footer",
)


def print_pdf(page: str) -> bytes:
    """Return the PDF of an HTML page.

    Raise `OperationRejected` if there is no browser, or if it prints nothing.
    """
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise OperationRejected(
            "a PDF needs Chromium or Chrome on this machine\n"
            "help: write --format html, and print the page with any browser"
        )
    with TemporaryDirectory() as directory:
        source, target = Path(directory, "report.html"), Path(directory, "report.pdf")
        source.write_text(page, "utf-8")
        command = [
            *(browser, *_FLAGS, *_root_flags(), f"--user-data-dir={directory}/profile"),
            *(f"--print-to-pdf={target}", source.as_uri()),
        ]
        try:
            subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise OperationRejected(
                f"`{browser}` printed no PDF within {TIMEOUT} seconds"
            ) from None
        if not target.exists():
            raise OperationRejected(f"`{browser}` printed no PDF")
        return target.read_bytes()


def _root_flags() -> tuple[str, ...]:
    """Return the flag without which Chromium does not run as root, as in containers."""
    return ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
