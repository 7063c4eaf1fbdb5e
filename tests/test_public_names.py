"""What `import dpolicy` offers is one readable list, and quick to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dpolicy


def test_every_public_name_is_there() -> None:
    assert dpolicy.__all__ == sorted(dpolicy.__all__)
    for name in dpolicy.__all__:
        assert getattr(dpolicy, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError):
        _ = dpolicy.nothing_of_that_name


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import dpolicy, sys; print([m for m in ('numpy', 'yaml', 'z3') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
