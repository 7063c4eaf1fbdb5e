"""Complete counter-offers: least total variance, minimality, unused ids, bounded work."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pdp.builders import GLOBAL, HEAD, ZIP, body, noise, started
from tests.reference.noise_grid import smallest_total_variance

from dpolicy.decisions.decide import decide
from dpolicy.decisions.denial_advice.trials import MAX_TRIALS
from dpolicy.errors import OperationRejected
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.denial_answers import copy_trials
from dpolicy.releases.edits import total_variance, with_more_noise
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.releases.texts.denial_text import describe_changes

RHO = "  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 0.5}}\n"
ZIPS = ZIP % "{rho: 0.2}"
PURE = "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 1, delta: 0}}\n"


def gaussian(sigma: Any, *attributes: str, **more: Any) -> dict[str, Any]:
    return {
        "mechanism": noise(kind="gaussian", sigma=sigma),
        "unit": "user",
        "attributes": sorted(attributes),
        **more,
    }


def laplace(scale: Any, *attributes: str) -> dict[str, Any]:
    return {**gaussian(1, *attributes), "mechanism": noise(kind="laplace", scale=scale)}


def best_offer(point: DecisionPoint, request: dict[str, Any]) -> dict[str, Any]:
    """Return the offer with the least total variance, as the author gets it."""
    offers = point.check(request).counter_offers
    return dict(next(offer for offer in offers if "mechanisms" in offer))


def offered_body(offer: dict[str, Any]) -> dict[str, Any]:
    return dict(release_from_plain(offer["release"]).body)


# What an offer carries


def test_an_offer_carries_parameters_and_a_release_that_is_allowed() -> None:
    point = started(RHO)
    denied = point.submit(body("pv-big", gaussian("0.5", name="histogram")))
    (offer,) = denied.counter_offers
    assert offer["change"] == "scale every noise parameter by"
    assert offer["factor"] == 2.0
    assert offer["mechanisms"] == {"histogram": {"sigma": 1}}
    assert offer["release"]["release"] == "pv-big-2"
    assert point.submit(offer["release"]).allowed


def test_an_answer_has_offers_and_its_record_has_none() -> None:
    point = started(RHO)
    assert point.submit(body("r", gaussian("0.5"))).counter_offers
    assert point.submit(body("r", gaussian("0.5"))).counter_offers, "also a repeated request"
    answer = point.event(2).answer  # type: ignore[union-attr]
    assert '"would-fit": []' in answer


@pytest.mark.parametrize(
    ("used", "release", "expected"),
    [
        ((), "pv", "pv-2"),
        (("pv-2", "pv-3"), "pv", "pv-4"),
        (("pv",), "pv-2", "pv-3"),
        ((), "views-2026-10-28", "views-2026-10-28-2"),
        ((), "x" * 100, "x" * 98 + "-2"),
    ],
)
def test_a_suggested_id_is_unused(used: tuple[str, ...], release: str, expected: str) -> None:
    point = started(RHO)
    for name in used:
        point.submit(body(name, gaussian("100")))
    (offer,) = point.submit(body(release, gaussian("0.5"))).counter_offers
    assert offer["release"]["release"] == expected
    assert point.submit(offer["release"]).allowed


def test_an_edited_release_under_a_denied_id_gets_a_new_id() -> None:
    point = started(RHO)
    point.submit(body("pv", gaussian("0.5")))
    with pytest.raises(OperationRejected, match="choose a new id, for example `pv-2`") as error:
        point.submit(body("pv", gaussian("1")))
    assert error.value.code == "id-taken"


def test_a_repeated_denial_offers_what_fits_now() -> None:
    point = started(RHO)
    request = body("r", gaussian("0.5"))
    assert point.submit(request).counter_offers[0]["mechanisms"] == {"mechanism 1": {"sigma": 1}}
    point.submit(body("other", gaussian("2")))
    again = point.submit(request)
    assert again.replayed
    assert again.counter_offers[0]["release"]["release"] == "r-2"
    assert point.submit(again.counter_offers[0]["release"]).allowed


def test_a_denied_release_that_fits_now_needs_a_new_id_only() -> None:
    point = started(RHO)
    request = body("r", gaussian("0.5"))
    held = point.reserve(body("held", gaussian("1")))
    assert held.allowed
    request = body("r", gaussian("2"))
    assert not point.submit(request).allowed
    point.void("held", because="not run")
    (offer,) = point.submit(request).counter_offers
    assert offer["change"] == "choose a new id"
    assert point.submit_offer(request, 1).decision.allowed


# Submitting an offer


def test_an_offer_is_submitted_under_an_unused_or_a_given_id() -> None:
    point = started(RHO)
    request = body("r", gaussian("0.5"))
    point.submit(request)
    submitted = point.submit_offer(request, 1, new_id="mine")
    assert submitted.decision.allowed
    assert submitted.body["release"] == submitted.decision.release == "mine"
    with pytest.raises(OperationRejected, match="`mine` was used for another release"):
        point.submit_offer(request, 1, new_id="mine")
    assert "mine" in point.entries
    assert "r-2" not in point.entries


def test_an_offer_that_does_not_exist_is_refused() -> None:
    point = started(RHO)
    request = body("r", gaussian("0.5"))
    with pytest.raises(OperationRejected, match="has 1 counter-offer now, and no number 2"):
        point.submit_offer(request, 2)
    allowed = body("small", gaussian("10"))
    with pytest.raises(OperationRejected, match="allowed as it is"):
        point.submit_offer(allowed, 1)
    point.submit(allowed)
    with pytest.raises(OperationRejected, match="`small` was allowed"):
        point.submit_offer(allowed, 1)


# Least total variance


SIGMAS = st.sampled_from(("0.4", "0.7", "1", "3", "9"))
REQUESTS = st.lists(st.tuples(SIGMAS, st.booleans()), min_size=2, max_size=2)
GRID = [Fraction(n, 100) for n in (*range(100, 200, 6), *range(200, 520, 20))]


@settings(max_examples=15, deadline=None)
@given(REQUESTS, st.sampled_from((None, "2", "8")))
def test_the_least_noise_is_that_of_a_grid_search(
    requests: list[tuple[str, bool]], earlier: str | None
) -> None:
    point = started(RHO, ZIPS)
    if earlier:
        assert point.submit(body("earlier", gaussian(earlier, "zip"))).allowed
    request = body("r", *(gaussian(sigma, *(["zip"] if z else [])) for sigma, z in requests))
    decision = point.check(request)
    if decision.allowed:
        return
    decider = point.read_state(copy_trials)
    decider.remaining = len(GRID) ** 2
    best = smallest_total_variance(request, decider.is_allowed, GRID)
    if best is None:
        return
    offer = offered_body(best_offer(point, request))
    assert total_variance(offer) <= float(best) * 1.001


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.builds(gaussian, SIGMAS),
                st.builds(laplace, SIGMAS),
                st.builds(
                    lambda e: {**gaussian(1), "mechanism": noise(epsilon=e)},
                    st.sampled_from(("0.3", "1", "2.5")),
                ),
            ),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(((RHO, ZIPS), (GLOBAL, ZIP % "{epsilon: 1.5}"), (PURE,))),
)
def test_an_offer_is_allowed_minimal_and_no_worse_than_scaling(
    requests: list[tuple[dict[str, Any], bool]], policies: tuple[str, ...]
) -> None:
    point = started(*policies)
    request = body("r", *({**m, "attributes": ["zip"] if z else []} for m, z in requests))
    decision = point.check(request)
    for offer in decision.counter_offers:
        assert point.check(offer["release"]).allowed
    offers = [dict(offer) for offer in decision.counter_offers if "mechanisms" in offer]
    scaled = [offer for offer in offers if "factor" in offer]
    for offer in offers:
        changed = offered_body(offer)
        assert total_variance(changed) <= min(
            (total_variance(offered_body(other)) for other in scaled), default=float("inf")
        )
        assert not point.check({**_with_less_noise(request, changed), "release": "less"}).allowed


def _with_less_noise(original: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return the changed release with one percent less noise where the noise was changed."""
    less = with_more_noise(changed, Fraction(99, 100))
    assert less is not None
    pairs = zip(original["mechanisms"], changed["mechanisms"], less["mechanisms"], strict=True)
    mechanisms = [
        after if before["mechanism"] == after["mechanism"] else smaller
        for before, after, smaller in pairs
    ]
    return {**changed, "mechanisms": mechanisms}


def test_mechanisms_that_touch_no_exceeded_rule_keep_their_noise() -> None:
    point = started(RHO.replace("0.5", "50"), ZIPS)
    request = body("r", gaussian("1", "zip", name="z"), gaussian("0.5", "views", name="v"))
    assert set(best_offer(point, request)["mechanisms"]) == {"z"}


def test_blocks_are_charged_separately() -> None:
    head = HEAD.replace("user: {}", "user: {relation: add-remove}")
    point = started(RHO, head=head)
    days = [{"from": f"2026-01-0{n}", "to": f"2026-01-0{n}"} for n in (1, 2)]
    policy = "  - {name: day, kind: custom, when: always, unit: user-day, budget: {rho: 0.02}}\n"
    point = started(RHO.replace("0.5", "50"), policy, head=head)
    mechanisms = [
        gaussian(sigma, unit="user-day", time=day, name=name)
        for sigma, day, name in (("1", days[0], "a"), ("100", days[1], "b"), ("2", days[1], "c"))
    ]
    offer = best_offer(point, body("r", *mechanisms))
    assert set(offer["mechanisms"]) == {"a", "c"}
    assert offer["mechanisms"]["a"]["sigma"] == pytest.approx(5, rel=0.01)


def test_a_mechanism_without_noise_parameters_does_not_prevent_an_offer() -> None:
    curve = {**gaussian(1), "mechanism": noise(renyi={"2": Fraction("0.1"), "32": Fraction("0.2")})}
    point = started(GLOBAL)
    offer = best_offer(point, body("r", gaussian("1", name="g"), curve))
    assert offer["change"] == "set noise parameters"
    assert set(offer["mechanisms"]) == {"g"}


def test_restatements_are_scaled_too() -> None:
    fields = {
        "mechanism": noise(rho="0.015"),
        "unit": "user-day",
        "also": {"user": {"rho": Fraction("0.9")}},
    }
    (offer,) = started(RHO).check(body("r", fields)).counter_offers
    assert offer["release"]["mechanisms"][0]["also"]["user"]["rho"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("rho", ["0.015", "0.6"])
def test_an_offer_states_every_changed_number_of_a_restatement(rho: str) -> None:
    days = RHO.replace("unit: user,", "units: [user, user-day],")
    restated = "0.4123456" if rho == "0.6" else "0.9"
    fields = {
        "mechanism": noise(rho=rho),
        "unit": "user-day",
        "also": {"user": {"rho": Fraction(restated)}},
        "name": "m",
    }
    point, request = started(days), body("r", fields)
    offer = best_offer(point, request)
    stated = offer["mechanisms"]["m"]
    changed = offer["release"]["mechanisms"][0]
    assert stated == {"rho": changed["mechanism"]["rho"], "also": changed["also"]}
    text = describe_changes(offer["mechanisms"], request)
    assert f"also.user.rho {restated} → " in text
    pasted = {
        **fields,
        "mechanism": noise(rho=stated["rho"]),
        "also": {"user": {"rho": Fraction(str(stated["also"]["user"]["rho"]))}},
    }
    assert point.submit(body("pasted", pasted)).allowed


def test_the_advice_on_a_denial_costs_a_fixed_number_of_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def count(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return decide(*arguments)

    monkeypatch.setattr("dpolicy.decisions.denial_advice.trials.decide", count)
    point = started(RHO, ZIPS, GLOBAL)
    mechanisms = [gaussian(f"0.{n + 10}", *(["zip"] if n % 2 else [])) for n in range(40)]
    assert point.check(body("r", *mechanisms)).counter_offers
    assert 0 < calls <= MAX_TRIALS


def test_a_release_with_many_boxes_gets_no_offers() -> None:
    """The search would take time in the boxes of all mechanisms, for each decision."""
    point = started("  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 0.1}}\n")
    boxes = [{"age": {"from": 2 * n, "to": 2 * n}} for n in range(60)]
    fields = {"mechanism": {"kind": "gaussian", "sigma": 1}, "unit": "user", "where": boxes}
    for count, has_offers in ((4, True), (5, False)):
        mechanisms = [{**fields, "name": f"m{n}"} for n in range(count)]
        decision = point.check({"release": "r", "mechanisms": mechanisms})
        assert not decision.allowed
        assert bool(decision.counter_offers) is has_offers


def test_an_omission_leaves_out_the_mechanism_that_makes_it_allowed() -> None:
    """Both mechanisms have the same name; only without the second one the release fits."""
    point = started("  - {name: g, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n")
    fields = [
        {"name": "a", "mechanism": noise(epsilon=epsilon), "unit": "user"}
        for epsilon in ("0.5", "3")
    ]
    decision = point.check(body("r", *fields))
    (offer,) = [o for o in decision.counter_offers if o["change"] == "leave out mechanism"]
    assert point.check(offer["release"]).allowed
