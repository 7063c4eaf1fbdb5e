"""Numbers, truth values and days of any common Python type are read exactly, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.releases.release_bodies import NUMPY_FRACTION

import dpolicy
from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_plain, release_with_author

NUMBERS: list[tuple[Any, str]] = [
    (2, "2"),
    (0.1, "0.1"),
    (1e-7, "1e-7"),
    (Decimal("0.10"), "0.1"),
    (Fraction(1, 8), "0.125"),
    (np.float64(0.1), "0.1"),
    (np.float32(0.1), "0.1"),
    (np.float16(0.1), "0.1"),
    (np.longdouble("0.1"), "0.1"),
    (np.int64(3), "3"),
    (np.uint8(255), "255"),
    (np.array(0.1), "0.1"),
    (np.array(7), "7"),
]


def release_of(**fields: Any) -> Release:
    noise = {"kind": "gaussian", "sigma": 2}
    return release_from_plain({"release": "r", "mechanisms": [{"mechanism": noise, **fields}]})


@pytest.mark.parametrize(("value", "text"), NUMBERS, ids=lambda value: repr(value))
def test_a_number_is_the_decimal_that_it_prints(value: Any, text: str) -> None:
    assert to_plain_body(value) == Fraction(text)
    noise = {"kind": "laplace", "scale": 1, "sensitivity": value}
    parsed = release_from_plain({"release": "r", "mechanisms": [{"mechanism": noise}]})
    assert parsed.body["mechanisms"][0]["mechanism"]["sensitivity"] == Fraction(text)


@pytest.mark.parametrize("value", [np.int64(3), np.uint8(3), NUMPY_FRACTION])
def test_a_numpy_integer_can_be_encoded(value: Any) -> None:
    assert encode_canonical(to_plain_body({"sigma": value})) == b'{"sigma":3}'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_numpy_float_is_read_like_the_same_python_float(value: float) -> None:
    assert to_plain_body(np.float64(value)) == to_plain_body(value) == Fraction(repr(value))


def test_numpy_truth_values_and_arrays_are_read_like_python_values() -> None:
    assert to_plain_body([np.bool_(True), np.array(False)]) == [True, False]
    assert to_plain_body(np.array(["b", "a"])) == ["a", "b"]
    assert to_plain_body(np.array([0.5, 2])) == [Fraction("0.5"), Fraction(2)]
    assert release_of(additive=np.bool_(True)).mechanisms[0].additive is True


@pytest.mark.parametrize("key", [2, 2.0, np.int64(2), np.float64(2), Decimal(2), "2"], ids=repr)
def test_an_order_may_be_a_number_of_any_type(key: Any) -> None:
    assert to_plain_body({key: 0.3}) == {"2": Fraction("0.3")}


DAYS: list[Any] = [
    date(2026, 10, 28),
    datetime(2026, 10, 28, 14, 30),
    pd.Timestamp("2026-10-28 14:30"),
    np.datetime64("2026-10-28"),
    np.datetime64("2026-10-28T14:30"),
    "2026-10-28",
]


@pytest.mark.parametrize("day", DAYS, ids=repr)
def test_a_day_may_have_any_type(day: Any) -> None:
    (mechanism,) = release_of(time={"from": day, "to": day}).body["mechanisms"]
    assert mechanism["time"] == {"from": "2026-10-28", "to": "2026-10-28"}


REFUSED: list[tuple[Any, str]] = [
    (float("nan"), "M006"),
    (float("inf"), "M006"),
    (np.float32("nan"), "M006"),
    (np.array(np.inf), "M006"),
    (Decimal("NaN"), "M006"),
    (Decimal("-Infinity"), "M006"),
    (Fraction(1, 3), "M006"),
    (datetime(2026, 10, 28, tzinfo=UTC), "P009"),
    (pd.Timestamp("2026-10-28", tz="Asia/Tokyo"), "P009"),
    (pd.NaT, "P009"),
    ({2: 0.1, "2": 0.3}, "P004"),
    (np.datetime64("2026"), "P009"),
    (np.datetime64("2026-03"), "P009"),
    (np.datetime64("2026-03-04", "W"), "P009"),
    (np.datetime64("NaT"), "P009"),
    (np.timedelta64(3, "D"), "P009"),
    (np.timedelta64(3, "M"), "P009"),
    (np.array(["2026-03"], dtype="datetime64[M]")[0], "P009"),
    (10**1001, "M006"),
    (Decimal("1E+1001"), "M006"),
    (Decimal("1E-999999"), "M006"),
    (pd.Series(["age"]), "P007"),
    ((name for name in ["age"]), "P007"),
]

#: Values whose text is too long for a test id.
LONG_REFUSED: list[tuple[Any, str]] = [
    (10**5000, "too large"),
    (Fraction(10**5000, 3), "too large"),
    (Fraction(1, 10**5000), "1000 decimal places"),
    (Decimal("1E+999999999"), "too large"),
]


@pytest.mark.parametrize(("value", "code"), REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_without_one_exact_meaning_is_refused(value: Any, code: str) -> None:
    with pytest.raises(InvalidValue, match=rf"{code}: `release\.x` ") as refused:
        to_plain_body({"x": value})
    with pytest.raises(dpolicy.ReleaseRejected) as rejected:
        release_from_plain({"release": "r", "mechanisms": [], "x": value})
    assert [problem.code for problem in rejected.value.problems] == [refused.value.code]


@pytest.mark.parametrize(("value", "message"), LONG_REFUSED, ids=["a", "b", "c", "d"])
def test_a_number_without_a_short_text_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=rf"M006: `release\.x` .*{message}"):
        to_plain_body({"x": value})


def test_a_mapping_that_contains_itself_is_refused() -> None:
    own: dict[str, Any] = {"release": "r", "mechanisms": []}
    own["mechanisms"].append(own)
    with pytest.raises(dpolicy.MalformedRelease, match="contains itself"):
        release_from_plain(own)


def test_the_messages_of_refused_values_say_what_to_pass() -> None:
    with pytest.raises(InvalidValue, match="a month of NumPy and not a day; help: pass the first"):
        to_plain_body(np.datetime64("2026-03"))
    with pytest.raises(InvalidValue, match="is a `Series`, not a list; help: give a list of names"):
        to_plain_body(pd.Series(["age"]))
    with pytest.raises(InvalidValue, match="is too large: 1e1001 or more"):
        to_plain_body(Decimal("1E+1001"))


def test_a_malformed_release_has_its_own_error(tmp_path: Path) -> None:
    """`except PolicyRejected` still catches it, as it did before."""
    file = tmp_path / "release.yaml"
    file.write_text("release: r\nmechanisms: [{mechanism: {kind: gauss, sigma: 2}}]\n")
    for load in (dpolicy.load_release, lambda path: dpolicy.load_release(str(path))):
        with pytest.raises(dpolicy.ReleaseRejected) as error:
            load(file)
        assert isinstance(error.value, dpolicy.MalformedRelease | PolicyRejected)
        assert [problem.code for problem in error.value.problems] == ["M001"]
        assert f"{file}:2:26: error M001" in str(error.value)
    file.write_text("release: r\nmechanisms: [" + "{a: 1}, " * 2_000 + "]\n")
    with pytest.raises(dpolicy.MalformedRelease, match="remaining ones are not listed"):
        dpolicy.load_release(file)
    with pytest.raises(dpolicy.MalformedRelease, match="P007"):
        release_from_plain({"release": "r", "mechanisms": "none"})
    with pytest.raises(dpolicy.MalformedRelease, match="P011"):
        release_with_author(release_of(), "a\nb")


def test_a_release_and_a_policy_are_loaded_from_a_text_path(tmp_path: Path) -> None:
    release, policy = tmp_path / "release.yaml", tmp_path / "policy.yaml"
    release.write_text("release: r\nmechanisms: [{mechanism: {kind: gaussian, sigma: 2}}]\n")
    policy.write_text(
        "dpolicy: 1\naccounting: {delta: 1e-7}\nunits: {user: {}}\npolicies:\n"
        "  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2}}\n"
    )
    assert dpolicy.load_release(str(release)) == dpolicy.load_release(release)
    assert dpolicy.load_policy(str(policy)).digest == dpolicy.load_policy(policy).digest
