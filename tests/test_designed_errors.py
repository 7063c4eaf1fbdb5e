"""A wrong argument raises an error of dpolicy that says what to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pdp.builders import GLOBAL, body, mechanism, policy

import dpolicy
from dpolicy.cli.main import exit_code
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


def test_a_list_is_printed_as_its_author_wrote_it() -> None:
    for value, text in (([5], "[5]"), ({"a": [1, "b"]}, "{a: [1, b]}")):
        noise = {"kind": "gaussian", "sigma": value}
        with pytest.raises(dpolicy.MalformedRelease) as rejected:
            DecisionPoint(":memory:").check({"release": "r", "mechanisms": [{"mechanism": noise}]})
        assert f"`sigma` must be a number, not `{text}`" in str(rejected.value)


@pytest.mark.parametrize("by", ["ana, bob", "<ana>"])
def test_an_invalid_identity_names_the_valid_characters(by: str) -> None:
    with pytest.raises(dpolicy.MalformedRelease, match=r"P011.*\n? *.*with spaces and \. : / @ \|"):
        DecisionPoint(":memory:").check({**body("r", mechanism(epsilon=1)), "by": by})


@pytest.mark.parametrize("text", ["dpolicy: 1\n", "# a policy\n" * 1000])
def test_a_text_file_is_not_a_damaged_ledger(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    assert exit_code(["budgets", "--ledger", str(file)]) == 5
    printed = capsys.readouterr().err
    assert "is not a ledger but another file" in printed and "damaged" not in printed


def test_gaussian_noise_needs_a_delta(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["calibrate", "--kind", "gaussian", "--epsilon", "1"]) == 64
    assert "meets ε 1 at δ 0; help: pass --delta" in capsys.readouterr().err


def test_a_correction_that_no_rule_reads_may_lower_a_charge() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(GLOBAL))
    point.submit(body("r", mechanism(("views", "zip"), epsilon="0.1")))
    with pytest.raises(dpolicy.OperationRejected, match="of `r` may lower a charge; a second"):
        point.relabel(body("r", mechanism(("views",), epsilon="0.1")), "views alone")
