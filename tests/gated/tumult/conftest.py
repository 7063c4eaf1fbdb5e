"""Ignore all warnings: Spark and its dependencies warn at every import and call."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore")
