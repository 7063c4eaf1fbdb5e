"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from dpolicy.text.did_you_mean import suggest


@pytest.mark.parametrize("count", [3, 5_000])
def test_a_misspelt_name_is_corrected_among_few_and_many(count: int) -> None:
    names = [f"attribute-{n:05}" for n in range(count)] + ["diagnosis", "page-views"]
    assert suggest("diagnosys", names) == "did you mean `diagnosis`?"
    assert suggest("page_views", names) == "did you mean `page-views`?"
    assert suggest("attribut-00001", names) == "did you mean `attribute-00001`?"


def test_a_short_list_of_names_is_listed() -> None:
    assert suggest("xyz", ["b", "a"]) == "use one of `a`, `b`"
    assert suggest("xyz", [f"a{n}" for n in range(100)]) is None
    assert suggest("x" * 10**6, ["x"]) == "use `x`"
