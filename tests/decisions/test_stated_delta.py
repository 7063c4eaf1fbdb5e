"""Stated δ has its own balance beside ε: decisions, budgets and texts judge the two separately."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pdp.builders import CLASSIC, HEAD, body, mechanism, policy, started

from dpolicy.cli.main import dpolicy
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import delta_share, loss_share, used_share
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.texts.denial_text import describe_denial
from dpolicy.releases.texts.stated_delta import delta_help, delta_numbers, reason_delta_text
from dpolicy.service.dashboard.pages.rendering import format_amount, format_amounts

ZIP = "  - {name: %s, kind: custom, when: '\"zip\" in attributes', unit: user, budget: %s}\n"
ALL = "  - {name: all, kind: custom, when: always, unit: user%s, budget: %s}\n"
EPSILON = "{epsilon: 6, delta: 1e-8}"
LEAKS = HEAD.replace("delta: 1e-7", "delta: 1e-8, leaks: 10 %")


def stated(release: str, epsilon: str, delta: str, **more: Any) -> dict[str, Any]:
    """Return a release that states (ε, δ)."""
    return body(release, {**mechanism(("views",), epsilon=epsilon, delta=delta), **more})


def test_a_stated_delta_within_its_part_is_allowed() -> None:
    """From outside: (0.1, 10⁻⁹) under (6, 10⁻⁸) with 10 % for stated leaks."""
    point = started(ALL % ("", EPSILON), head=LEAKS)
    decision = point.check(stated("a", "0.1", "1e-9"))
    assert decision.allowed
    (reason,) = decision.as_json()["reasons"]
    assert reason["leaks"] == {"limit": 1e-9} and reason["binding"] == "delta"
    assert reason["spent"] == {"epsilon": 0.0, "delta": 0.0}
    assert reason["after"] == {"epsilon": 0.1, "delta": 1e-9}


@pytest.mark.parametrize(
    ("head", "delta", "text"),
    [(HEAD, "2e-9", "2e-09 exceeds 1e-09"), (CLASSIC, "1e-9", "1e-09 exceeds 7.12824e-10")],
)
def test_a_denial_for_delta_says_so(head: str, delta: str, text: str) -> None:
    point = started(ALL % ("", EPSILON), head=head)
    decision = point.check(stated("a", "0.1", delta))
    (reason,) = decision.reasons
    assert not reason.holds and reason.binding == "delta"
    assert reason.exceeds_delta and not reason.exceeds_loss
    kept = "the part of δ 1e-08 kept for stated leaks"
    assert reason_delta_text(reason) == f"stated δ 0 → {text}, {kept}"
    assert "raise `accounting: {leaks}`" in (delta_help(decision) or "")


def test_both_quantities_can_be_exceeded() -> None:
    point = started(ALL % ("", EPSILON))
    (reason,) = point.check(stated("a", "7", "1e-8")).reasons
    assert reason.binding == "both" and reason.exceeds_loss and reason.exceeds_delta
    (reason,) = point.check(stated("a", "7", "1e-12")).reasons
    assert reason.binding == "epsilon" and reason.exceeds_loss and not reason.exceeds_delta


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ("{rho: 1}", "δ 1e-09 is stated, and a budget in ρ allows none"),
        ("{mu: 1}", "δ 1e-09 is stated, and a budget in μ allows none"),
        ("{renyi: {2: 1}}", "δ 1e-09 is stated, and a budget in Rényi orders allows none"),
        ("{epsilon: 6, delta: 0}", "δ 1e-09 is stated, and a budget in ε with δ 0 allows none"),
    ],
)
def test_other_budgets_allow_no_stated_delta(budget: str, text: str) -> None:
    decision = started(ALL % ("", budget)).check(stated("a", "0.1", "1e-9"))
    (reason,) = decision.reasons
    assert reason.delta_limit == 0 and reason.exceeds_delta
    assert reason_delta_text(reason) == text
    assert delta_help(decision) == "use a mechanism kind without δ, or a budget in ε with a δ"


def test_an_unlimited_budget_has_no_limit_of_delta() -> None:
    (reason,) = started(ALL % ("", "unlimited")).check(stated("a", "0.1", "1e-9")).reasons
    assert reason.holds and reason.delta_limit is None and reason.binding is None
    assert reason_delta_text(reason) == "stated δ 1e-09, without a limit"


def test_the_spenders_of_a_rule_exceeded_in_delta_are_those_of_delta() -> None:
    point = started(ALL % ("", EPSILON))
    point.import_past(body("large", mechanism(("views",), epsilon="2")))
    point.import_past(stated("leaky", "0.1", "5e-10"))
    point.import_past(stated("leakier", "0.1", "6e-10"))
    (status,) = point.budgets()
    assert status.spenders == ("leakier", "leaky")
    (reason,) = point.check(body("new", mechanism(("views",), epsilon="0.1"))).reasons
    assert reason.spenders == ("leakier", "leaky")


def test_the_used_share_is_that_of_the_binding_quantity() -> None:
    point = started(ALL % ("", EPSILON), head=LEAKS)
    point.submit(stated("a", "3", "2.5e-10"))
    (status,) = point.budgets()
    assert loss_share(status) == Fraction(1, 2) and delta_share(status) == pytest.approx(0.25)
    assert used_share(status) == Fraction(1, 2) and status.binding == "epsilon"
    point.submit(stated("b", "0.1", "6e-10"))
    (status,) = point.budgets()
    assert used_share(status) == pytest.approx(0.85) and status.binding == "delta"
    assert status.as_json()["leaks"] == {"limit": 1e-9}


def test_the_tightest_rules_consider_delta() -> None:
    point = started(
        ALL % ("", "{epsilon: 100, delta: 2e-9}"), *(ZIP % (f"z{n}", EPSILON) for n in range(4))
    )
    decision = point.check(body("a", mechanism(("zip",), epsilon="0.1", delta="1e-10")))
    assert decision.reasons[0].rule == "all" and decision.reasons[0].binding == "delta"


def test_budgets_print_a_second_bar_for_delta(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    point = DecisionPoint(ledger)
    point.apply(policy(ALL % ("", EPSILON), head=LEAKS))
    point.submit(body("pure", mechanism(("views",), epsilon="3")))
    point.close()
    arguments = ["budgets", "--ledger", str(ledger)]
    assert len(CliRunner().invoke(dpolicy, arguments).stdout.splitlines()) == 1
    point = DecisionPoint(ledger)
    point.import_past(stated("a", "0.1", "2e-9"))
    point.close()
    first, second = CliRunner().invoke(dpolicy, arguments).stdout.splitlines()
    assert "52 %" in first and "exceeded" not in first
    assert "200 %" in second and second.endswith(
        "stated δ 2e-09 of 1e-09, the part of δ 1e-08 kept for stated leaks  exceeded"
    )


POLICIES = (
    ALL.replace("name: all", "name: classic") % (", profile: classic", "{epsilon: 3, delta: 1e-7}"),
    ALL.replace("name: all", "name: anchored")
    % (", profile: anchored", "{epsilon: 4, delta: 1e-8}"),
    ALL.replace("name: all", "name: pure") % ("", "{epsilon: 5, delta: 0}"),
    ZIP % ("rho", "{rho: 1}"),
    ZIP % ("big", "{epsilon: 2, delta: 1e-6}"),
)
CAP = ALL.replace("name: all", "name: cap") % (", profile: static", "{epsilon: 1, delta: 1e-7}")
DELTAS = ("0", "1e-12", "7.12824027e-9", "7.12824028e-9", "1e-9", "1e-8", "1.00000001e-8", "1e-7")
PLACES: tuple[dict[str, Any], ...] = ({}, {"where": {"country": ["CH"]}})


def releases() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return lists of mechanisms that state (ε, δ), or Gaussians."""
    declared = st.builds(
        lambda attribute, epsilon, delta, place: {
            **mechanism((attribute,), epsilon=epsilon, delta=delta),
            **place,
        },
        st.sampled_from(("views", "zip")),
        st.sampled_from(("0.1", "0.5", "1", "1.001")),
        st.sampled_from(DELTAS),
        st.sampled_from(PLACES),
    )
    gaussian = st.sampled_from(("2.8", "5", "20")).map(
        lambda sigma: mechanism(("views",), kind="gaussian", sigma=sigma)
    )
    return st.lists(st.one_of(declared, declared, gaussian), min_size=1, max_size=12)


def assert_true(reason: Reason) -> None:
    """Check every printed number and verdict of a reason against the others."""
    shown = reason.as_json()
    limits = {key: value for key, value in shown["budget"].items() if key != "delta"}
    within_loss = all(
        shown["after"][key] is not None and shown["after"][key] <= limit
        for key, limit in limits.items()
    )
    within_delta = shown["after"].get("delta", 0.0) <= shown["leaks"]["limit"]
    assert shown["holds"] == (within_loss and within_delta)
    assert (reason.exceeds_loss, reason.exceeds_delta) == (not within_loss, not within_delta)
    numbers, text = delta_numbers(reason), reason_delta_text(reason)
    assert (numbers is None) == (text is None) == (not shown["after"].get("delta"))
    if numbers is not None and text is not None:
        assert Fraction(numbers.after) >= Fraction(str(shown["after"]["delta"]))
        assert (float(numbers.after) <= float(numbers.limit)) == within_delta
        printed = re.search("→ (.*) (exceeds|of) ([^,]*),", text)
        if printed is not None:
            assert (float(printed[1]) <= float(printed[3])) == (printed[2] == "of") == within_delta


@settings(deadline=None, max_examples=40)
@given(releases())
def test_no_reason_is_false(mechanisms: list[dict[str, Any]]) -> None:
    store = MemoryStore()
    point = started(*POLICIES, store=store, each=CAP)
    for number, fields in enumerate(mechanisms):
        request = body(f"r{number}", fields)
        decision = point.submit(request)
        for reason in decision.reasons:
            assert_true(reason)
        assert decision.allowed == all(reason.holds for reason in decision.reasons)
        if not decision.allowed and number % 2:
            point.import_past(request | {"release": f"past{number}"})
    for status in point.budgets():
        share = used_share(status)
        assert status.holds == (share is not None and share <= 1)
    assert audit_ledger(store).findings == ()


def test_a_recorded_decision_of_version_0_2_judges_delta_too() -> None:
    """Its record has no limit of δ: the quantity follows from the other numbers."""
    decision = started(ALL % ("", EPSILON), head=CLASSIC).check(stated("a", "0.1", "1e-9"))
    payload = decision.as_json()
    for reason in payload["reasons"]:
        del reason["leaks"], reason["binding"], reason["spent"]["delta"]
    old = Decision.from_json(payload)
    assert old.as_json() == payload
    (reason,) = old.reasons
    assert reason.exceeds_delta and not reason.exceeds_loss
    assert reason_delta_text(reason) == (
        "stated δ 0 → 1e-09 exceeds the part of δ kept for stated leaks"
    )


def test_an_unbounded_loss_states_no_delta() -> None:
    """Static data for a day cost a user an unknown loss: it is infinite, and δ is not its cause."""
    for budget in (EPSILON, "{rho: 1}"):
        point = started(ALL % ("", budget))
        request = body("a", {**mechanism(("views",), rho="0.01"), "unit": "user-day"})
        decision = point.check(request)
        (reason,) = decision.reasons
        assert reason.exceeds_loss and not reason.exceeds_delta and None in reason.after.values()
        assert reason_delta_text(reason) is None and delta_help(decision) is None
        point.import_past(request)
        (status,) = point.budgets()
        assert status.binding == reason.binding != "delta" and not status.holds


def test_a_conflict_in_delta_says_so(tmp_path: Path) -> None:
    ledger, text = tmp_path / "ledger.db", tmp_path / "policy.yaml"
    point = DecisionPoint(ledger)
    point.apply(policy(ALL % ("", "{epsilon: 6, delta: 1e-7}")))
    point.submit(stated("a", "0.1", "1e-9"))
    point.close()
    text.write_text(CLASSIC + "policies:\n" + ALL % ("", EPSILON), "utf-8")
    output = CliRunner().invoke(dpolicy, ["apply", str(text), "--ledger", str(ledger)]).output
    assert "stated δ 1e-09 exceeds 7.12824e-10, the part of δ 1e-08 kept for stated leaks" in output


def test_python_texts_compare_a_stated_delta_with_its_own_limit() -> None:
    point = started(ALL % ("", EPSILON), head=CLASSIC)
    request = stated("a", "0.1", "1e-9")
    denied = point.check(request)
    kept = "exceeds 7.12824e-10, the part of δ 1e-08 kept for stated leaks"
    recorded = replace(denied.reasons[0], after={"delta": 1e-9, "epsilon": 0.1})
    change = f"ε 0 → 0.1 of 6, stated δ 0 → 1e-09 {kept}"
    for reason in (denied.reasons[0], recorded):
        assert change in describe_denial(replace(denied, reasons=(reason,)), request)
        assert "ε 0 → ε 0.1 of" in repr(reason) and kept in repr(reason)
    assert kept in denied._repr_html_()
    point.import_past(request)
    (status,) = point.budgets()
    assert "ε 0.1 of ε 6" in repr(status) and "stated δ 1e-09 of 7.12824e-10, the" in repr(status)


def test_a_full_rule_has_no_text_above_its_budget() -> None:
    point = started(ALL % ("", "{rho: 0.1234561}"))
    decision = point.submit(body("a", mechanism(("views",), rho="0.1234561")))
    assert decision.allowed
    (status,), (reason,) = point.budgets(), decision.reasons
    for text in (repr(status), repr(point.budgets()), repr(reason), decision._repr_html_()):
        assert "0.123457" not in text and "0.1234561" in text
    assert format_amounts(reason.after, reason.budget) == "ρ 0.1234561"
    assert format_amount(0.1234561, 0.1234561) == "0.1234561"
