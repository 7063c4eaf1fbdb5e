"""Parser of mechanisms: every kind, and every problem with its code."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from dpolicy.privacy.mechanisms.declared import (
    DeclaredCurve,
    DeclaredGdp,
    DeclaredPure,
    DeclaredZcdp,
)
from dpolicy.privacy.mechanisms.gaussian import (
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Pate,
    TreeAggregation,
)
from dpolicy.privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from dpolicy.privacy.mechanisms.parameters import PROBLEMS
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.mechanisms.registry import (
    MECHANISM_KINDS,
    parse_mechanism,
    parse_restatements,
)
from dpolicy.privacy.mechanisms.selection import (
    ExponentialMechanism,
    NoisyMaxNoise,
    ReportNoisyMax,
    SparseVector,
)

F = Fraction

GOOD: list[tuple[dict[str, object], object]] = [
    ({"kind": "gaussian", "sigma": F("57.8"), "sensitivity": 10}, Gaussian(F("57.8"), F(10))),
    ({"kind": "gaussian", "sigma": 2, "count": 3}, Gaussian(F(2), count=3)),
    ({"kind": "discrete-gaussian", "sigma": 2}, DiscreteGaussian(F(2))),
    (
        {"kind": "laplace", "scale": 2, "sampling-rate": F("0.1")},
        Laplace(F(2), sampling_rate=F("0.1")),
    ),
    ({"kind": "discrete-laplace", "scale": 2, "sensitivity": 3}, DiscreteLaplace(F(2), F(3))),
    ({"kind": "randomized-response", "truth": F("0.75")}, RandomizedResponse(F("0.75"))),
    (
        {"kind": "randomized-response", "values": 4, "noise": F("0.5")},
        KaryResponse(4, F("0.5")),
    ),
    ({"kind": "exponential", "epsilon": F("0.1")}, ExponentialMechanism(F("0.1"))),
    (
        {"kind": "report-noisy-max", "epsilon": 1, "noise": "gumbel"},
        ReportNoisyMax(F(1), NoisyMaxNoise.GUMBEL),
    ),
    (
        {"kind": "sparse-vector", "epsilon-threshold": 1, "epsilon-queries": 2, "cutoff": 3},
        SparseVector(F(1), F(2), 3),
    ),
    (
        {
            "kind": "dp-sgd",
            "noise-multiplier": F("1.1"),
            "sampling-rate": F("0.0043"),
            "steps": 14000,
        },
        DpSgd(F("1.1"), 14000, sampling_rate=F("0.0043")),
    ),
    (
        {"kind": "tree-aggregation", "noise-multiplier": 2, "steps": 8, "participations": 2},
        TreeAggregation(F(2), 8, 2),
    ),
    ({"kind": "pate", "sigma": 40, "queries": 100, "data-dependent": False}, Pate(F(40), 100)),
    ({"kind": "declared", "epsilon": F("0.5")}, DeclaredPure(F("0.5"))),
    (
        {"kind": "declared", "epsilon": F("0.5"), "delta": F("1e-9")},
        DeclaredPure(F("0.5"), F("1e-9")),
    ),
    ({"kind": "declared", "epsilon": 0, "delta": F("1e-9")}, DeclaredPure(F(0), F("1e-9"))),
    ({"kind": "declared", "epsilon": 1, "delta": 0}, DeclaredPure(F(1))),
    (
        {"kind": "declared", "epsilon": 1, "delta": F(1, 10**100)},
        DeclaredPure(F(1), F(1, 10**100)),
    ),
    ({"kind": "declared", "rho": 1, "xi": F("0.1")}, DeclaredZcdp(F(1), F("0.1"))),
    ({"kind": "declared", "mu": 1}, DeclaredGdp(F(1))),
    (
        {"kind": "declared", "renyi": {8: F("1.2"), "2": F("0.3"), F("2.5"): F("0.4")}},
        DeclaredCurve(((F(2), F("0.3")), (F("2.5"), F("0.4")), (F(8), F("1.2")))),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), GOOD, ids=lambda value: str(value)[:40])
def test_every_kind_is_parsed(fields: Mapping[str, object], expected: object) -> None:
    assert parse_mechanism(fields) == (expected, ())


def test_every_kind_has_an_example() -> None:
    assert {fields["kind"] for fields, _ in GOOD} == set(MECHANISM_KINDS)


GAUSSIAN: dict[str, object] = {"kind": "gaussian", "sigma": 2}
RESPONSE: dict[str, object] = {"kind": "randomized-response"}
SGD: dict[str, object] = {"kind": "dp-sgd", "noise-multiplier": 1, "sampling-rate": 1, "steps": 1}
DECLARED: dict[str, object] = {"kind": "declared"}
MAX: dict[str, object] = {"kind": "report-noisy-max", "epsilon": 1}

BAD: list[tuple[dict[str, object], str, str]] = [
    ({}, "M001", "needs a `kind`"),
    ({"kind": "gausian"}, "M001", "did you mean `gaussian`?"),
    ({"kind": "magic"}, "M001", "one of declared, discrete-gaussian"),
    ({"kind": 3}, "M001", "unknown kind `3`"),
    ({**GAUSSIAN, "sensitivty": 2}, "M002", "did you mean `sensitivity`?"),
    ({**GAUSSIAN, "cutoff": 2}, "M002", "has no parameter `cutoff`; use one of `count`, "),
    ({**DECLARED, "rho": 1, "delta": F("1e-9")}, "M002", "has no parameter `delta`"),
    ({"kind": "gaussian"}, "M003", "needs `sigma`"),
    ({**SGD, "kind": "dp-sgd", "sampling-rate": None}, "M004", "must be a number"),
    ({k: v for k, v in SGD.items() if k != "sampling-rate"}, "M003", "needs `sampling-rate`"),
    ({**MAX}, "M003", "needs `noise`"),
    ({**GAUSSIAN, "sigma": "2"}, "M004", "must be a number, not `2`"),
    ({**GAUSSIAN, "sigma": True}, "M004", "must be a number"),
    ({**GAUSSIAN, "sigma": 2.5}, "M004", "must be a number"),
    ({**GAUSSIAN, "sigma": float("nan")}, "M004", "must be a number"),
    ({**DECLARED, "renyi": [1, 2]}, "M004", "must map"),
    ({**DECLARED, "renyi": {}}, "M004", "must map"),
    ({**DECLARED, "renyi": {n: n for n in range(2, 2000)}}, "M004", "must map"),
    ({**DECLARED, "renyi": {"two": 1}}, "M004", "must be a number"),
    ({**DECLARED, "renyi": {"2e999999999": 1}}, "M004", "must be a number"),
    ({**DECLARED, "renyi": {2: "x"}}, "M004", "must be a number"),
    ({**GAUSSIAN, "sigma": 0}, "M005", "must be positive"),
    ({**GAUSSIAN, "sigma": -2}, "M005", "must be positive, not `-2`"),
    ({**GAUSSIAN, "count": 0}, "M005", "must be positive"),
    ({**GAUSSIAN, "count": "many"}, "M004", "must be a number"),
    ({**DECLARED, "epsilon": 1, "delta": "tiny"}, "M004", "must be a number"),
    ({**DECLARED, "epsilon": 0}, "M005", "must be positive"),
    ({**DECLARED, "epsilon": -1, "delta": F("1e-9")}, "M005", "must be positive"),
    ({**DECLARED, "rho": 1, "xi": -1}, "M005", "must be positive"),
    ({**DECLARED, "renyi": {2: 0}}, "M005", "must be positive"),
    ({**GAUSSIAN, "sigma": F("1e-12")}, "M006", "outside 1e-9 to 1e9"),
    ({**GAUSSIAN, "sigma": 10**12}, "M006", "outside 1e-9 to 1e9"),
    ({**GAUSSIAN, "sigma": F(1, 3**400)}, "M006", "more than 100 digits"),
    ({**GAUSSIAN, "count": 10**10}, "M006", "outside 1 to"),
    ({**GAUSSIAN, "sampling-rate": F("1e-12")}, "M006", "outside"),
    ({**DECLARED, "epsilon": 1, "delta": F(1, 10**100) / 2}, "M006", "100 digits"),
    ({**RESPONSE, "truth": 1 - F("1e-12")}, "M006", "within 1e-9 of its limit"),
    ({**GAUSSIAN, "sampling-rate": 0}, "M007", "above 0 and at most 1"),
    ({**GAUSSIAN, "sampling-rate": F("1.5")}, "M007", "`1.5`"),
    ({**SGD, "sampling-rate": -1}, "M007", "above 0"),
    ({**SGD, "steps": F("1.5")}, "M008", "must be a whole number, not `1.5`"),
    ({**RESPONSE}, "M009", "either `truth`"),
    ({**RESPONSE, "truth": F("0.7"), "values": 3, "noise": F("0.1")}, "M009", "either `truth`"),
    ({**RESPONSE, "truth": F("0.7"), "noise": F("0.1")}, "M009", "either `truth`"),
    ({**RESPONSE, "values": 3}, "M003", "needs `noise`"),
    ({**RESPONSE, "values": 1, "noise": F("0.1")}, "M006", "outside 2 to"),
    ({**DECLARED}, "M009", "not none of them"),
    ({**DECLARED, "rho": 1, "epsilon": 1}, "M009", "not `epsilon` and `rho`"),
    ({**DECLARED, "renyi": {2: 1, "2": 1}}, "M009", "one order twice"),
    ({**DECLARED, "epsilon": 1, "delta": 1}, "M010", "below 1"),
    ({**DECLARED, "epsilon": 1, "delta": -1}, "M010", "at least 0"),
    ({**DECLARED, "renyi": {1: F("0.1")}}, "M011", "order `1`"),
    ({**DECLARED, "renyi": {F("1.001"): F("0.1")}}, "M011", "at least 1.01"),
    ({**DECLARED, "renyi": {10**7: 1}}, "M011", "at most 1000000"),
    ({**DECLARED, "renyi": {2: F("0.2"), 3: F("0.1")}}, "M012", "falls from `0.2` at `2`"),
    ({**DECLARED, "renyi": {2: 1, 3: 2, 4: 2}}, "M013", "around order `3`"),
    ({"kind": "pate", "sigma": 1, "queries": 1, "data-dependent": True}, "M014", "not accepted"),
    ({**GAUSSIAN, "data-dependent": True}, "M014", "not accepted"),
    ({**MAX, "noise": "gaussian"}, "M015", "L2 sensitivity"),
    ({**MAX, "noise": "gumble"}, "M015", "did you mean `gumbel`?"),
    ({**MAX, "noise": 3}, "M015", "one of gumbel"),
    ({**RESPONSE, "truth": F("0.5")}, "M016", "above 0.5 and below 1"),
    ({**RESPONSE, "truth": 1}, "M016", "above 0.5"),
    ({**RESPONSE, "values": 3, "noise": 1}, "M016", "above 0 and below 1"),
]


@pytest.mark.parametrize(("fields", "code", "text"), BAD, ids=lambda value: str(value)[:60])
def test_problems_have_codes_and_messages(
    fields: Mapping[str, object], code: str, text: str
) -> None:
    mechanism, problems = parse_mechanism(fields)
    assert mechanism is None
    assert [problem.code for problem in problems] == [code]
    assert text in problems[0].message
    assert problems[0].message[0].islower() or problems[0].message[0] == "`"


def test_all_problems_are_reported_at_once() -> None:
    _, problems = parse_mechanism(
        {"kind": "gaussian", "sigma": -1, "sensitivity": "x", "count": F("0.5"), "nose": 1}
    )
    assert sorted(problem.code for problem in problems) == ["M002", "M004", "M005", "M008"]


def test_every_code_has_a_test_and_a_title() -> None:
    elsewhere = {"M017", "M018", "M019"}  # restating, cost tables, calibration
    tested = {code for _, code, _ in BAD} | elsewhere
    assert tested == set(PROBLEMS)


def test_rounded_tables_are_accepted() -> None:
    """The rounded decimals of a printed curve may violate convexity slightly."""
    curve = {n: F(str(round(n * 0.0123457, 4))) for n in range(2, 40)}
    mechanism, problems = parse_mechanism({"kind": "declared", "renyi": curve})
    assert mechanism is not None, problems


def test_restatements_change_parameters_relative_to_the_unit() -> None:
    fields = {"kind": "gaussian", "sigma": 5, "sensitivity": 10}
    restated, problems = parse_restatements(fields, {"user-month": {"sensitivity": 70}})
    assert restated == {"user-month": Gaussian(F(5), F(70))} and not problems
    declared = {"kind": "declared", "epsilon": 1, "delta": F("1e-9"), "count": 2}
    restated, problems = parse_restatements(declared, {"user": {"rho": F("0.1")}})
    assert restated == {"user": DeclaredZcdp(F("0.1"), count=2)} and not problems


def test_restating_the_noise_is_rejected() -> None:
    fields = {"kind": "gaussian", "sigma": 5}
    restated, problems = parse_restatements(
        fields, {"user": {"sigma": 50}, "user-day": {"sensitivity": -1}}
    )
    assert restated == {}
    assert [problem.code for problem in problems] == ["M017", "M005"]
    assert "`sigma` cannot be restated for `user`" in problems[0].message
