"""The quick reading of bodies gives what the strict reading gives, its naive twin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.servers import release
from tests.service.test_bad_input import BODIES

from dpolicy.errors import DPolicyError, MalformedRelease
from dpolicy.service.http import request_body
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.release_shapes import ReleaseShape, ReleasesShape, SubmissionShape
from dpolicy.text.shapes import Shape

SHAPES: list[Shape] = [ReleaseShape(), SubmissionShape(), ReleasesShape(3)]

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        release("a"),
        release("b", "0.25", attributes=["zip", "views", "zip"], labels={"stage": "final"}),
        {**release("c"), "mode": "reserve"},
        {**release("d"), "mode": 1},
        {**release("e"), "mode": ["commit"]},
        {**release("f"), "by": "ana", "utility": 2},
        release("g", unknown=1),
        release("-h"),
        release("i", where=[{"country": ["AT"]}]),
        release("j", time={"from": "2026-10-01", "to": "2026-10-02"}),
        {"release": "k", "mechanisms": []},
        {},
        [],
        1,
        None,
    ]
)


def outcome(read: Any, data: bytes, shape: Shape) -> Any:
    """Return the value of a body, or its error as text."""
    try:
        value = read(data, shape)
    except DPolicyError as error:
        return type(error), str(error)
    items = value if isinstance(value, tuple) else (value,)
    return [str(item) if isinstance(item, MalformedRelease) else item for item in items], [
        getattr(item, "body", None) for item in items
    ]


def check(data: bytes) -> int:
    """Compare both readings for each shape; return how many were quick."""
    count = 0
    for shape in SHAPES:
        strict = outcome(request_body._read_strictly, data, shape)
        parsed = outcome(lambda d, s: request_body.parse_body(d, s, ServiceLimits()), data, shape)
        assert parsed == strict
        count += request_body._read_quickly(data, shape) is not None
    return count


@settings(max_examples=150, deadline=None)
@given(st.one_of(VALUES, st.builds(lambda items: {"releases": items}, st.lists(VALUES))))
def test_both_readings_agree(value: Any) -> None:
    check(json.dumps(value).encode())


@pytest.mark.parametrize("name", [name for name in BODIES if name != "many values"])
def test_both_readings_agree_on_invalid_bodies(name: str) -> None:
    check(BODIES[name][0])


def test_well_formed_bodies_are_read_quickly() -> None:
    assert check(json.dumps(release("a")).encode()) == 2
    assert check(json.dumps({"releases": [release("a"), release("b")]}).encode()) == 1
