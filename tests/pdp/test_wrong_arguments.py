"""Arguments of the wrong type or with invalid Unicode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.pdp.builders import GLOBAL, policy, pure, started

from dpolicy.errors import InvalidValue
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import Journal

WRONG_ARGUMENTS: dict[str, Callable[[DecisionPoint], object]] = {
    "void by": lambda p: p.void("r", "unused", by=3),  # type: ignore[arg-type]
    "void because": lambda p: p.void("r", None),  # type: ignore[arg-type]
    "void id": lambda p: p.void(["r"], "unused"),  # type: ignore[arg-type]
    "void surrogate": lambda p: p.void("r", "\ud800"),
    "commit id": lambda p: p.commit({}),  # type: ignore[arg-type]
    "commit by": lambda p: p.commit("r", by=b"a"),  # type: ignore[arg-type]
    "apply because": lambda p: p.apply(policy(GLOBAL), because=1),  # type: ignore[arg-type]
    "apply accept": lambda p: p.apply(policy(GLOBAL), accept=3),  # type: ignore[arg-type]
    "apply names": lambda p: p.apply(policy(GLOBAL), accept=[[]]),  # type: ignore[list-item]
    "import because": lambda p: p.import_past(pure("i", "1"), because=2),  # type: ignore[arg-type]
    "import many": lambda p: p.import_many([pure("i", "1")], "\udfff"),
    "relabel": lambda p: p.relabel(pure("r", "1"), None),  # type: ignore[arg-type]
    "propose void": lambda p: p.propose_void("r", 1, "a"),  # type: ignore[arg-type]
    "propose relabelling": lambda p: p.propose_relabelling(pure("r", "1"), "x", 1),  # type: ignore[arg-type]
    "propose policy": lambda p: p.propose_policy(policy(GLOBAL), (), 1),  # type: ignore[arg-type]
    "propose": lambda p: p.propose(pure("q", "1"), 1),  # type: ignore[arg-type]
    "approve": lambda p: p.approve([], "a"),  # type: ignore[arg-type]
    "approve because": lambda p: p.approve(1, "a", 1),  # type: ignore[arg-type]
    "reject": lambda p: p.reject("1", "a"),  # type: ignore[arg-type]
    "reject by": lambda p: p.reject(1, None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_a_wrong_argument_is_refused_before_the_queue(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the write lock, an unexpected error would fail the other requests of the commit."""
    point = started()

    def write(*_: object) -> None:
        raise AssertionError("the request waits for the writer")

    monkeypatch.setattr(Journal, "write", write)
    with pytest.raises(InvalidValue, match="P007"):
        WRONG_ARGUMENTS[name](point)
