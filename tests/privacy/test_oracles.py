"""Losses, conversions and calendars reproduce the numbers of `oracles.json` (T1)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from tests.reference.conversions import (
    gaussian_delta,
    implied_delta,
    mu_within,
    renyi_to_epsilon_classic,
    zcdp_to_epsilon_bun_steinke,
)

from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, Certificate, renyi
from dpolicy.privacy.conversion import (
    gaussian_to_epsilon,
    group_delta,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Loss, add_losses
from dpolicy.privacy.mechanisms.group_chain import group_divergence
from dpolicy.privacy.mechanisms.laplace import laplace_divergence
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.calendar import Period, sliding
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, group_size, parse_period

DATA = Path(__file__).parent.parent / "data" / "oracles.json"
ORACLES = json.loads(DATA.read_text("utf-8"))
PAPER_ORDERS = [Fraction(str(a)) for a in ORACLES["meta"]["orders_paper"]]

#: Kinds about budgets, thresholds, filters and pruning: the tests of those modules use them.
ELSEWHERE = {
    "filter_adaptive_advanced",
    "filter_budget_classic",
    "filter_budget_improved_single_order",
    "filter_gdp_capacity",
    "filter_zcdp_capacity_single_order",
    "kappa_sum",
    "counterexample_exists_alpha_classic_is_safe",
    "counterexample_exists_alpha_improved",
    "counterexample_natural_pld_filter",
}

#: The paper's footnote is not implemented: it is neither tight nor used (theory 4.6).
NOT_IMPLEMENTED = {"conv_zcdp_to_eps_paper_footnote"}

Case = Mapping[str, Any]


def number(value: float) -> Fraction:
    """Return the printed decimal of a float exactly."""
    return Fraction(repr(value))


def mechanism(kind: str, **fields: object) -> Mechanism:
    exact = {
        name.replace("_", "-"): number(value) if isinstance(value, float) else value
        for name, value in fields.items()
    }
    parsed, problems = parse_mechanism({"kind": kind, **exact})
    assert parsed is not None, problems
    return parsed


def loss_in(m: Mechanism, certificate: Certificate, k: int = 1) -> float:
    (quanta,) = cost(m, k, NeighbouringRelation.ADD_REMOVE, (certificate,))
    return math.inf if quanta is None else quanta / QUANTA_PER_UNIT


def at_order(case: Case, m: Mechanism, k: int = 1) -> float:
    order = case["alpha"]
    return loss_in(m, PURE if order == "inf" else renyi(number(order)), k)


def curve_of_kind(kind: str, **names: str) -> Callable[[Case], float]:
    """Return an evaluator of a curve; `names` maps parameters of the kind to those of the case."""

    def evaluate(case: Case) -> float:
        fields = {ours: case["params"][theirs] for ours, theirs in names.items()}
        return at_order(case, mechanism(kind, **fields))

    return evaluate


def sgd(case: Case, k: int = 1) -> float:
    p = case["params"]
    m = mechanism("dp-sgd", noise_multiplier=p["sigma"], sampling_rate=p["q"], steps=1)
    return at_order(case, m, k)


def conversion(function: Callable[..., float], name: str) -> Callable[[Case], float]:
    def evaluate(case: Case) -> float:
        order = [number(case["alpha"])] if "alpha" in case else []
        return function(*order, number(case["params"][name]), number(case["delta"]))

    return evaluate


def discrete_gaussian(case: Case) -> float:
    sigma = Fraction(math.isqrt(int(case["params"]["sigma2"] * 100)), 10)
    m = mechanism("discrete-gaussian", sigma=sigma, sensitivity=case["params"]["integer_shift"])
    return at_order(case, m)


def discrete_laplace(case: Case) -> float:
    scale = 1 / number(case["params"]["scale_inv_eps0"])
    return at_order(
        case,
        mechanism("discrete-laplace", scale=scale, sensitivity=case["params"]["integer_shift"]),
    )


def group_of_declared(case: Case) -> float:
    p = case["params"]
    return loss_in(mechanism("declared", epsilon=p["eps"]), PURE, p["k"])


def group_chain(case: Case) -> float:
    p = case["params"]
    return group_divergence(lambda a: laplace_divergence(p["eps"], a), p["k"], case["alpha"])


def group_laplace(case: Case) -> float:
    p = case["params"]
    return at_order(case, mechanism("laplace", scale=1 / number(p["eps"])), p["k"])


def calendar(case: Case) -> float:
    p = case["params"]
    names = {"week_sun": "sunday-week", "isoyear": "iso-year"}

    def period(side: str) -> Period:
        if f"{side}_window_days" in p:
            return sliding(p[f"{side}_window_days"])
        return parse_period(names.get(p[side], p[side]))

    src, dst = period("src"), period("dst")
    return group_size(src, dst, None) or math.inf


def delta_at_smaller_epsilon(case: Case) -> float:
    p = case["params"]
    return float(implied_delta(number(p["eps_j"]), number(p["delta_j"]), number(p["eps_i"])))


def delta_of_group(case: Case) -> float:
    p = case["params"]
    return float(group_delta(number(p["eps"]), number(p["delta"]), p["k"]) or math.inf)


def item_mechanism(fields: Mapping[str, Any]) -> Mechanism:
    count = fields["count"]
    match fields["kind"]:
        case "laplace":
            return mechanism("laplace", scale=fields["b"], count=count)
        case "gaussian":
            return mechanism("gaussian", sigma=fields["sigma"], count=count)
        case "pure":
            return mechanism("declared", epsilon=fields["eps"], count=count)
        case "rr":
            return mechanism("randomized-response", truth=fields["p_truth"], count=count)
    noise, rate, steps = fields["sigma"], fields["q"], fields["steps"]
    return mechanism("dp-sgd", noise_multiplier=noise, sampling_rate=rate, steps=steps, count=count)


def composition_of_items(case: Case) -> float:
    """Return the smallest improved ε over the orders of the paper; check all orders."""
    certificates = tuple(map(renyi, PAPER_ORDERS))
    items = case["params"]["items"]
    losses = [
        cost(item_mechanism(i), 1, NeighbouringRelation.ADD_REMOVE, certificates) for i in items
    ]
    spent: Loss = reduce(add_losses, losses)
    spent_at = dict(zip(PAPER_ORDERS, spent, strict=True))
    delta = number(case["delta"])
    sampled = any(i["kind"] == "dpsgd" for i in items)
    for order, expected in zip(PAPER_ORDERS, case["expected"]["rdp_paper14"], strict=True):
        quanta = spent_at[order]
        if quanta is not None and expected not in (None, "inf"):
            value = quanta / QUANTA_PER_UNIT
            # At fractional orders, sampled curves may be bounded more loosely than by the oracle.
            loose = sampled and order.denominator != 1
            assert expected * (1 - (0.05 if loose else 1e-8)) <= value
            assert value <= expected * (1.4 if loose else 1 + 1e-8) + 1e-10
    divergences = {o: Fraction(q, QUANTA_PER_UNIT) for o, q in spent_at.items() if q is not None}
    classic = min(renyi_to_epsilon_classic(o, r, delta) for o, r in divergences.items())
    assert classic == pytest.approx(case["expected"]["classic_paper14"], rel=1e-6)
    return min(renyi_to_epsilon(o, r, delta) for o, r in divergences.items())


def blackbox(case: Case) -> float:
    p = case["params"]
    orders = [Fraction(n, 10) for n in range(11, 110)]
    orders += [Fraction(n) for n in (*range(11, 64), 128, 256, 512, 1024)]  # dp-accounting's
    certificates = tuple(map(renyi, orders))
    m = mechanism("declared", epsilon=p["eps_each"], delta=p["delta_each"], count=p["n"])
    loss = cost(m, 1, NeighbouringRelation.ADD_REMOVE, certificates)
    assert float(loss.delta) == pytest.approx(p["delta_total"] - p["delta_conversion"], rel=1e-9)
    delta = number(p["delta_conversion"])
    return min(
        renyi_to_epsilon(order, Fraction(quanta or 0, QUANTA_PER_UNIT), delta)
        for order, quanta in zip(orders, loss, strict=True)
    )


EVALUATE: Mapping[str, Callable[[Case], float]] = {
    "adp_implied_delta": delta_at_smaller_epsilon,
    "calendar_group_size": calendar,
    "calendar_group_size_sliding_dst": calendar,
    "calendar_group_size_sliding_src": calendar,
    "calibrate_gaussian_sigma": lambda c: 1 / mu_within(number(c["epsilon"]), number(c["delta"])),
    "composition_adp_blackbox": blackbox,
    "composition_mix": composition_of_items,
    "conv_rdp_to_eps_classic": conversion(renyi_to_epsilon_classic, "rdp"),
    "conv_rdp_to_eps_improved": conversion(renyi_to_epsilon, "rdp"),
    "conv_zcdp_to_eps_bun_steinke": conversion(zcdp_to_epsilon_bun_steinke, "rho"),
    "conv_zcdp_to_eps_improved": conversion(zcdp_to_epsilon, "rho"),
    "counterexample_prune_delta": lambda c: gaussian_delta(
        math.sqrt(2 * c["params"]["gaussian_rho"]), c["epsilon"]
    ),
    "gdp_delta_exact": lambda c: gaussian_delta(c["params"]["mu"], c["epsilon"]),
    "gdp_epsilon_exact": lambda c: gaussian_to_epsilon(c["params"]["mu"], number(c["delta"])),
    "gdp_from_pure": lambda c: math.sqrt(
        loss_in(mechanism("declared", epsilon=c["params"]["eps"]), MU_SQUARED)
    ),
    "group_adp_delta": delta_of_group,
    "group_pure": group_of_declared,
    "group_rdp_chain_bound": group_chain,
    "group_rdp_gaussian": lambda c: at_order(
        c, mechanism("gaussian", sigma=c["params"]["sigma"]), c["params"]["k"]
    ),
    "group_rdp_laplace_exact": group_laplace,
    "group_zcdp": lambda c: loss_in(
        mechanism("declared", rho=c["params"]["rho"]), RHO, c["params"]["k"]
    ),
    "rdp_discrete_gaussian_bound": discrete_gaussian,
    "rdp_discrete_laplace": discrete_laplace,
    "rdp_exponential_mechanism": curve_of_kind("exponential", epsilon="bounded_range"),
    "rdp_gaussian": curve_of_kind("gaussian", sigma="sigma", sensitivity="l2_sensitivity"),
    "rdp_group_poisson_gaussian": lambda c: sgd(c, c["params"]["k"]),
    "rdp_kary_randomized_response": curve_of_kind(
        "randomized-response", values="num_buckets", noise="noise_parameter"
    ),
    "rdp_laplace": curve_of_kind("laplace", scale="b", sensitivity="l1_sensitivity"),
    "rdp_pate_gnmax_data_independent": curve_of_kind("pate", sigma="sigma", queries="queries"),
    "rdp_poisson_subsampled_gaussian": sgd,
    "rdp_poisson_subsampled_gaussian_fractional": sgd,
    "rdp_pure_dp": curve_of_kind("declared", epsilon="eps"),
    "rdp_randomized_response": curve_of_kind("randomized-response", truth="p_truth"),
    "rdp_tree_aggregation": curve_of_kind(
        "tree-aggregation",
        steps="steps",
        noise_multiplier="noise_multiplier",
        participations="participations",
    ),
    "rdp_zcdp": curve_of_kind("declared", rho="rho", xi="xi"),
    "zcdp_from_pure": lambda c: loss_in(mechanism("declared", epsilon=c["params"]["eps"]), RHO),
}

CASES = [case for case in ORACLES["cases"] if case["kind"] in EVALUATE]

#: Losses are rounded up to a quantum.
QUANTUM = 1 / QUANTA_PER_UNIT


def test_every_kind_is_used_by_a_test() -> None:
    kinds = {case["kind"] for case in ORACLES["cases"]}
    assert kinds == set(EVALUATE) | ELSEWHERE | NOT_IMPLEMENTED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_oracle(case: Case) -> None:
    result, value = EVALUATE[case["kind"]](case), case["value"]
    slack = max(case["tolerance"] * abs(value), case.get("abs_tolerance", 0.0)) + QUANTUM
    if case["kind"] == "rdp_group_poisson_gaussian":
        # The exact mixture is below the chain bound, which dpolicy charges.
        assert value * (1 - 1e-8) <= result
        bound = case["crosscheck"]["upper:chain group bound"]
        assert result <= bound * (1 + 1e-8) + QUANTUM
    elif case["direction"] == "lower_bound_for_implementation":
        top = case["crosscheck"]["info:interpolated"]
        assert value * (1 - case["tolerance"]) <= result <= top * (1 + 1e-9) + QUANTUM
    elif case["direction"] == "must_exceed_delta_i":
        assert result > case["params"]["rule_i"][1]
        assert result == pytest.approx(value, rel=1e-6)
    elif value > 2**20:
        assert result == math.inf
    else:
        assert value - slack <= result <= value + slack
