"""A wrong argument raises an error of dpolicy that says what to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pdp.builders import GLOBAL, body, mechanism, policy

import dpolicy
from dpolicy.client import wire
from dpolicy.errors import PolicyConflicts
from dpolicy.pdp.decision_point import DecisionPoint

READERS: list[Callable[[Any], object]] = [
    dpolicy.load_release,
    dpolicy.load_policy,
    lambda path: DecisionPoint(":memory:").apply(path),
    lambda path: wire.apply_call(path, (), ""),
]


@pytest.mark.parametrize("read", READERS)
def test_a_missing_file_has_both_kinds_of_error(
    read: Callable[[Any], object], tmp_path: Path
) -> None:
    for path in (tmp_path / "nothing.yaml", str(tmp_path / "nothing.yaml")):
        with pytest.raises(dpolicy.FileMissing, match=r"nothing\.yaml") as missing:
            read(path)
        assert isinstance(missing.value, FileNotFoundError)
        assert isinstance(missing.value, dpolicy.DPolicyError)
        assert missing.value.filename == str(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", [None, 5, ["a.yaml"], {"dpolicy": 1}], ids=repr)
def test_a_value_that_is_no_path_is_refused(read: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(dpolicy.InvalidValue, match="P007: expected the path of a file, got"):
        read(value)


def test_a_directory_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(dpolicy.FileUnreadable) as unreadable:
        dpolicy.load_release(tmp_path)
    assert isinstance(unreadable.value, OSError)
    with pytest.raises(dpolicy.FileMissing, match="no policy file in this directory"):
        dpolicy.load_policy(tmp_path)
    with pytest.raises(dpolicy.FileMissing, match="no file can have this path"):
        dpolicy.load_release("a\0b")


@pytest.mark.parametrize("ledger", [None, 5, {}], ids=repr)
def test_a_ledger_is_a_path_an_address_or_a_store(ledger: Any) -> None:
    with pytest.raises(dpolicy.InvalidValue, match="P007: `ledger` is a value of the type"):
        DecisionPoint(ledger)


@pytest.mark.parametrize("number", ["1", None, 1.0], ids=repr)
def test_the_number_of_an_offer_is_whole(number: Any) -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(GLOBAL))
    with pytest.raises(dpolicy.InvalidValue, match=r"P007: `number` is .*; help: give a whole"):
        point.submit_offer(body("r", mechanism(epsilon=9)), number)


def test_conflicts_are_named_in_the_message() -> None:
    class Conflict:
        def __init__(self, number: int) -> None:
            self.name = f"rule-{number}"

    one, many = PolicyConflicts([Conflict(0)]), PolicyConflicts([Conflict(n) for n in range(7)])
    assert str(one) == "the policy has a conflict with recorded releases: `rule-0`"
    listed = "`rule-0`, `rule-1`, `rule-2`, `rule-3`, `rule-4`, and 2 more"
    assert str(many) == f"the policy has 7 conflicts with recorded releases: {listed}"
