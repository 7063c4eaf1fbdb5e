"""Text of decisions: notion and amounts of every budget, for new and for recorded decisions."""

from __future__ import annotations

from typing import Any

import pytest

from dpolicy.cli.output.decision_text import print_decision
from dpolicy.releases.decision import Decision, Reason


def reason(budget: dict[str, Any] | str, spent: dict[str, Any], *, holds: bool = True) -> Reason:
    return Reason(
        rule="global",
        policies=("global",),
        unit="user",
        budget=budget,
        spent=spent,
        cost=dict.fromkeys(spent, 0.999),
        after=dict.fromkeys(spent, 2.99),
        holds=holds,
        source="policy.yaml:3:5",
        each_release=False,
    )


def printed(decision: Decision, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_decision(decision)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("budget", "spent", "text"),
    [
        ({"epsilon": 3.0, "delta": 1e-7}, {"epsilon": 2.75}, "2.75 → 2.99 of ε 3 (alone 0.999)"),
        ({"delta": 1e-7, "epsilon": 3.0}, {"epsilon": 2.75}, "2.75 → 2.99 of ε 3 (alone 0.999)"),
        ({"rho": 0.5}, {"rho": 0.1}, "0.1 → 2.99 of ρ 0.5 (alone 0.999)"),
        ({"mu": 1.0}, {"mu": None}, "∞ → 2.99 of μ 1 (alone 0.999)"),
        ("unlimited", {"rho": 0.1}, "0.1 → 2.99 of unlimited (alone 0.999)"),
        (
            {"renyi": {"2": 0.3, "8": 1.2}},
            {"renyi 2": 0.1, "renyi 8": 0.2},
            "0.1, 0.2 → 2.99, 2.99 of rényi(2) 0.3, rényi(8) 1.2 (alone 0.999, 0.999)",
        ),
    ],
)
def test_a_reason_has_its_notion_and_the_loss_before_and_after(
    budget: dict[str, Any] | str,
    spent: dict[str, Any],
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    decision = Decision("r", allowed=True, policy="sha256:0", reasons=(reason(budget, spent),))
    assert printed(decision, capsys) == [
        "allowed  r",
        f"  global  unit user  {text}  policy.yaml:3:5",
    ]


def test_a_recorded_decision_prints_as_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    exceeded = reason({"epsilon": 2.0, "delta": 1e-7}, {"epsilon": 1.5}, holds=False)
    decision = Decision("r", allowed=False, policy="sha256:0", reasons=(exceeded,))
    recorded = Decision.from_json(decision.as_json()).as_replay()
    first, *reasons = printed(recorded, capsys)
    assert first == "denied  r  (recorded decision)"
    assert reasons == printed(decision, capsys)[1:]
    assert "1.5 → 2.99 exceeds ε 2 (alone 0.999)" in reasons[0]
