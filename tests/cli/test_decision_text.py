"""Text of decisions: notion and amounts of every budget, for new and for recorded decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpolicy.cli.output.decision_text import print_decision
from dpolicy.releases.decision import Decision, Reason

#: The cost in ε of a rule that has a δ: the same mechanism costs another rule another ε.
CONVERTED = "(alone 0.999, by the rule's filter)"


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
        ({"epsilon": 3.0, "delta": 1e-7}, {"epsilon": 2.75}, f"2.75 → 2.99 of ε 3 {CONVERTED}"),
        ({"delta": 1e-7, "epsilon": 3.0}, {"epsilon": 2.75}, f"2.75 → 2.99 of ε 3 {CONVERTED}"),
        ({"epsilon": 3.0, "delta": 0.0}, {"epsilon": 2.75}, "2.75 → 2.99 of ε 3 (alone 0.999)"),
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
    assert f"1.5 → 2.99 exceeds ε 2 {CONVERTED}" in reasons[0]


def test_a_per_release_rule_has_no_loss_before(capsys: pytest.CaptureFixture[str]) -> None:
    cap = replace(reason({"epsilon": 3.0, "delta": 1e-7}, {"epsilon": 0.0}), each_release=True)
    decision = Decision("r", allowed=True, policy="sha256:0", reasons=(cap,))
    text = "2.99 of ε 3 (this release alone, by the rule's filter)"
    assert printed(decision, capsys)[1] == f"  global  unit user  {text}  policy.yaml:3:5"


@pytest.mark.parametrize(
    ("after", "limit", "holds", "text"),
    [
        (1.0986122886682, 2.0, True, "1.09862 of ε 2"),
        (1.0000049, 1.0, False, "1.00001 exceeds ε 1"),
        (1.0000049, 1.0000049, True, "1.0000049 of ε 1.0000049"),
        (2.9999999, 3.0, True, "→ 3 of ε 3"),
        (2.9999999, 2.99999995, True, "2.9999999 of ε 2.99999995"),
    ],
)
def test_a_loss_is_rounded_up_and_a_budget_is_not(
    after: float, limit: float, holds: bool, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rounded = replace(
        reason({"epsilon": limit, "delta": 1e-7}, {"epsilon": 0.0}, holds=holds),
        after={"epsilon": after},
    )
    decision = Decision("r", allowed=holds, policy="sha256:0", reasons=(rounded,))
    assert text in printed(decision, capsys)[1]
