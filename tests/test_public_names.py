"""`import dpolicy` offers a sorted list of names and loads no heavy library."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dpolicy
from dpolicy import errors


def test_every_public_name_exists() -> None:
    assert dpolicy.__all__ == sorted(dpolicy.__all__)
    for name in dpolicy.__all__:
        assert getattr(dpolicy, name) is not None


def test_an_unknown_name_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = dpolicy.nothing_of_that_name


def test_the_import_loads_no_heavy_library() -> None:
    code = "import dpolicy, sys; print([m for m in ('numpy', 'yaml', 'z3') if m in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


def test_a_shell_completes_the_public_names_and_nothing_else() -> None:
    assert dir(dpolicy) == sorted([*dpolicy.__all__, "__version__"])


def test_the_exceptions_that_a_caller_catches_are_public() -> None:
    raised = {
        error.__name__
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.DPolicyError)
    }
    internal = {"InvariantBroken", "PredicateFailed"}
    assert raised - internal <= set(dpolicy.__all__)


@pytest.mark.parametrize("name", ["Client", "release", "gaussian", "Decision", "Budgets"])
def test_a_client_program_loads_no_heavy_library(name: str) -> None:
    code = (
        f"import dpolicy, sys; dpolicy.{name};"
        "print([m for m in ('numpy', 'yaml', 'z3', 'pandas', 'polars') if m in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"
