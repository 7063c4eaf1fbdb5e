"""Reserve costs against their definition with 50 digits: never below, and hardly above."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import reserve_divergences as exact
from tests.reference import rounding
from tests.reference.divergences import Real, real

from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Certificates, amount_in
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
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.mechanisms.selection import (
    ExponentialMechanism,
    NoisyMaxNoise,
    ReportNoisyMax,
    SparseVector,
)
from dpolicy.privacy.reserves import excess_curves
from dpolicy.privacy.reserves.ladder import LADDER, RESERVES
from dpolicy.privacy.reserves.quadrature import certified_costs, unit_leak
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

CERTIFICATES: Certificates = (PURE, renyi(8), RHO, *LADDER)
ADD_REMOVE = NeighbouringRelation.ADD_REMOVE

#: Pure mechanisms with a group size, and the ε for which they are charged.
PURE_CASES: list[tuple[Mechanism, int, Callable[[], Real]]] = [
    *(
        (DeclaredPure(Fraction(text)), 1, lambda text=text: mp.mpf(text))
        for text in ("1e-5", "1e-4", "0.001", "0.01", "0.03", "0.1", "0.25", "0.5", "1", "1.9", "2")
    ),
    *(
        (DeclaredPure(Fraction(text)), 1, lambda text=text: mp.mpf(text))
        for text in ("2.1", "3", "5", "8", "20")
    ),
    (DeclaredPure(Fraction("0.1")), 7, lambda: mp.mpf("0.7")),
    (DeclaredPure(Fraction("0.02")), 31, lambda: mp.mpf("0.62")),
    (DeclaredPure(Fraction("0.1"), Fraction("1e-9")), 1, lambda: mp.mpf("0.1")),
    (RandomizedResponse(Fraction(3, 4)), 1, lambda: mp.log(3)),
    (RandomizedResponse(Fraction(11, 20)), 2, lambda: 2 * mp.log(mp.mpf(11) / 9)),
    (KaryResponse(4, Fraction(1, 2)), 1, lambda: mp.log(5)),
    (ExponentialMechanism(Fraction(1, 5)), 1, lambda: mp.mpf(1) / 5),
    (ReportNoisyMax(Fraction(1, 5), NoisyMaxNoise.GUMBEL), 2, lambda: mp.mpf(2) / 5),
    (SparseVector(Fraction(1, 60), Fraction(5, 60), 5), 1, lambda: mp.mpf(1) / 10),
    (DiscreteLaplace(Fraction(10)), 1, lambda: mp.mpf(1) / 10),
    (DiscreteLaplace(Fraction(1)), 2, lambda: mp.mpf(2)),
    (
        DeclaredPure(Fraction(1, 2), sampling_rate=Fraction(1, 10)),
        1,
        lambda: mp.log1p(mp.expm1(mp.mpf(1) / 2) / 10),
    ),
]
PURE_POINTS = 16

#: Mechanisms whose costs come from quadrature, with their atoms, the reserves that are tested, and
#: the x at which each cost binds, in standard deviations of the reserve.
QUADRATURE_CASES: dict[str, tuple[Mechanism, Callable[[], exact.Atoms], dict[int, str]]] = {
    "dp-sgd": (
        DpSgd(Fraction("1.6"), 1, sampling_rate=Fraction("0.005")),
        lambda: exact.gaussian_atoms(1 / mp.mpf("1.6"), mp.mpf("0.005")),
        {0: "11.8", 3: "7.12", 5: "6.73", 10: "6.58"},
    ),
    "heavy tail": (
        DpSgd(Fraction(1), 1, sampling_rate=Fraction("0.01")),
        lambda: exact.gaussian_atoms(mp.mpf(1), mp.mpf("0.01")),
        {6: "10.47", 9: "7.21", 10: "7.0"},
    ),
    "half of the data": (
        Gaussian(Fraction(10), sampling_rate=Fraction(1, 2)),
        lambda: exact.gaussian_atoms(mp.mpf(1) / 10, mp.mpf(1) / 2),
        {0: "14.28", 6: "6.74"},
    ),
    "laplace 0.1": (
        Laplace(Fraction(10)),
        lambda: exact.laplace_atoms(mp.mpf("0.1")),
        {0: "0", 4: "0", 10: "0"},
    ),
    "laplace 1": (
        Laplace(Fraction(1)),
        lambda: exact.laplace_atoms(mp.mpf(1)),
        {2: "0", 7: "0", 10: "0"},
    ),
    "discrete 10": (
        DiscreteGaussian(Fraction(10)),
        lambda: exact.discrete_gaussian_atoms(mp.mpf(10)),
        {0: "0", 5: "0"},
    ),
    "discrete 2": (
        DiscreteGaussian(Fraction(2)),
        lambda: exact.discrete_gaussian_atoms(mp.mpf(2)),
        {4: "0", 7: "0", 10: "0"},
    ),
    "discrete 1": (
        DiscreteGaussian(Fraction(1)),
        lambda: exact.discrete_gaussian_atoms(mp.mpf(1)),
        {6: "0", 7: "0", 10: "0"},
    ),
}

#: Other points of x, in the same unit.
DEVIATIONS = ("0.3", "0.7", "1.2", "2", "3", "4.5", "6", "7.5", "9")


def charged(mechanism: Mechanism, k: int, place: int) -> Real:
    """Return the charged cost beside a reserve of the ladder, in units."""
    amount = amount_in(cost(mechanism, k, ADD_REMOVE, CERTIFICATES), RESERVES[place])
    assert amount is not None
    return exact.quanta_to_real(amount)


@cache
def atoms_for(name: str) -> exact.Atoms:
    return QUADRATURE_CASES[name][1]()


@pytest.mark.parametrize("number", range(len(PURE_CASES)))
def test_pure_costs_are_above_their_definition_and_close(number: int) -> None:
    mechanism, k, epsilon = PURE_CASES[number]
    atoms, rng = exact.response_atoms(epsilon()), random.Random(number)
    for place, certificate in enumerate(RESERVES):
        reserve, c = real(certificate.order), charged(mechanism, k, place)
        deviation = mp.sqrt(reserve + c)
        points = [mp.mpf(0), *(deviation * rng.uniform(-9, 9) for _ in range(PURE_POINTS - 1))]
        assert all(exact.excess(atoms, reserve, x, c) <= 0 for x in points)
        if c > mp.mpf("1e-9"):  # below, a quantum is more than a part of 1,000
            assert exact.excess(atoms, reserve, mp.mpf(0), c * mp.mpf("0.99")) > 0


def test_there_are_5000_points() -> None:
    quadrature = sum(len(places) for _, _, places in QUADRATURE_CASES.values())
    points = len(PURE_CASES) * len(RESERVES) * PURE_POINTS
    assert points + quadrature * 2 * (len(DEVIATIONS) + 1) >= 5_000


@pytest.mark.parametrize("name", QUADRATURE_CASES)
def test_costs_by_quadrature_are_above_their_definition_and_close(name: str) -> None:
    mechanism, _, places = QUADRATURE_CASES[name]
    for place, binding in places.items():
        reserve, c = real(RESERVES[place].order), charged(mechanism, 1, place)
        is_tight = False
        for atoms in (atoms_for(name), exact.reverse(atoms_for(name))):
            for text in (binding, *DEVIATIONS):
                x = mp.mpf(text) * mp.sqrt(reserve)
                assert exact.excess(atoms, reserve, x, c) <= 0
            x = mp.mpf(binding) * mp.sqrt(reserve)
            is_tight = is_tight or exact.excess(atoms, reserve, x, c * mp.mpf("0.99")) > 0
        assert is_tight, (name, place)


@pytest.mark.parametrize("place", (0, 5, 10))
@pytest.mark.parametrize(
    "mechanism",
    (
        Gaussian(Fraction(7), Fraction(2)),
        TreeAggregation(Fraction(4), 20, 2),
        Pate(Fraction(40), 100),
        DeclaredGdp(Fraction(1, 3)),
    ),
)
def test_gaussian_kinds_cost_their_variance_beside_every_reserve(
    mechanism: Mechanism, place: int
) -> None:
    for k in (1, 3):
        loss = cost(mechanism, k, ADD_REMOVE, CERTIFICATES)
        assert amount_in(loss, RESERVES[place]) == amount_in(loss, MU_SQUARED) is not None


@pytest.mark.parametrize(
    "mechanism",
    (DeclaredZcdp(Fraction(1, 10)), DeclaredCurve(((Fraction(8), Fraction(1)),))),
)
def test_a_stated_curve_has_no_cost_beside_any_reserve(mechanism: Mechanism) -> None:
    loss = cost(mechanism, 1, ADD_REMOVE, CERTIFICATES)
    assert all(amount_in(loss, certificate) is None for certificate in LADDER)


def test_a_stated_delta_goes_to_the_delta_side() -> None:
    stated, pure = (
        cost(DeclaredPure(Fraction(1, 10), delta), 1, ADD_REMOVE, CERTIFICATES)
        for delta in (Fraction(1, 10**9), Fraction(0))
    )
    assert stated.delta == Fraction(1, 10**9)
    assert amount_in(stated, MU_SQUARED) is None
    assert amount_in(stated, RESERVES[0]) == amount_in(pure, RESERVES[0])


#: Small parameters, so that most examples need quadrature.
SCALES = st.sampled_from([Fraction(n, 2) for n in (1, 2, 3, 8, 20, 61, 200)])
SAMPLED = st.sampled_from([None, Fraction(1, 1000), Fraction(1, 10), Fraction(9, 10)])
MECHANISMS: st.SearchStrategy[Mechanism] = st.one_of(
    st.builds(Gaussian, SCALES, sampling_rate=SAMPLED),
    st.builds(DpSgd, SCALES, st.integers(1, 1000), sampling_rate=SAMPLED),
    st.builds(DiscreteGaussian, SCALES, st.sampled_from([Fraction(1, 2), Fraction(3, 2)])),
    st.builds(Laplace, SCALES, sampling_rate=SAMPLED),
    st.builds(DeclaredPure, SCALES, st.just(Fraction(1, 10**9)), sampling_rate=SAMPLED),
    st.builds(DeclaredZcdp, SCALES),
)


@settings(max_examples=40, deadline=None)
@given(MECHANISMS, st.sampled_from([1, 2, 7]), st.sampled_from(list(NeighbouringRelation)))
def test_amounts_equal_the_twin_and_fall_along_the_ladder(
    mechanism: Mechanism, k: int, relation: NeighbouringRelation
) -> None:
    loss = cost(mechanism, k, relation, CERTIFICATES)
    assert loss == rounding.cost(mechanism, k, relation, CERTIFICATES)
    amounts = loss.amounts[-len(LADDER) :]
    assert list(amounts) == sorted(amounts, reverse=True)


@pytest.mark.parametrize("k", (2, 3))
def test_a_group_of_sampled_units_costs_enough(k: int) -> None:
    """The pair of a removal of k units: k Gaussians, each with the rate, against none."""
    mechanism = Gaussian(Fraction(2), sampling_rate=Fraction(1, 20))
    rate, mu, place = mp.mpf(1) / 20, mp.mpf(1) / 2, 9
    reserve, c = real(RESERVES[place].order), charged(mechanism, k, place)
    weights = [mp.binomial(k, j) * rate**j * (1 - rate) ** (k - j) for j in range(k + 1)]
    atoms = []
    for n in range(-100, 140):
        z = mp.mpf(n) / 8
        ratio = mp.fsum(w * mp.exp(j * mu * z - (j * mu) ** 2 / 2) for j, w in enumerate(weights))
        atoms.append((mp.npdf(z) / 8 * ratio, mp.log(ratio)))
    for direction in (atoms, exact.reverse(atoms)):
        for text in ("0", *DEVIATIONS):
            x = mp.mpf(text) * mp.sqrt(reserve)
            assert exact.excess(direction, reserve, x, c) <= 0
    single = charged(mechanism, 1, place)
    assert exact.excess(atoms, reserve, 3 * mp.sqrt(reserve), single) > 0  # canary: k is needed


def test_a_cost_from_a_grid_of_x_alone_is_too_low() -> None:
    """Canary: without the bounds between points, a coarse grid misses the x that binds."""
    curve, reserve = excess_curves.gaussian_curve(1.0, 0.01), 1.024
    (certified,) = certified_costs(curve, [reserve], 1.0)
    atoms = atoms_for("heavy tail")
    by_grid = certified
    while all(
        exact.excess(atoms, mp.mpf(reserve), mp.mpf(x), mp.mpf(by_grid)) <= 0 for x in (0, 2, 4)
    ):
        by_grid *= 0.99
    assert by_grid < 0.99 * certified
    binding = 7 * mp.sqrt(mp.mpf(reserve))
    assert exact.excess(atoms, mp.mpf(reserve), binding, mp.mpf(by_grid)) > 0
    assert exact.excess(atoms, mp.mpf(reserve), binding, mp.mpf(certified)) <= 0


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["1e-6", "1e-4", "0.01", "0.2"]),
    st.sampled_from(["0.05", "0.3", "1", "2"]),
    st.sampled_from([0.004, 0.064, 1.024]),
)
def test_any_mechanism_with_two_outcomes_costs_enough(p: str, t: str, reserve: float) -> None:
    """A rare jump has atoms far apart: knots at the losses make its curve exact."""
    atoms = exact.rare_jump(mp.mpf(p), mp.mpf(t))
    (c,) = certified_costs(exact.curve_of_atoms(atoms), [reserve], 1e3)
    if c == float("inf"):
        return
    for direction in (atoms, exact.reverse(atoms)):
        for text in ("0", *DEVIATIONS):
            x = mp.mpf(text) * mp.sqrt(mp.mpf(reserve))
            assert exact.excess(direction, mp.mpf(reserve), x, mp.mpf(c)) <= 0


@pytest.mark.parametrize("k", (2, 10, 40))
def test_the_leak_of_a_chain_stays_within_its_share(k: int) -> None:
    for reserve, c in ((1e-4, 1e-5), (0.01, 1e-3), (0.2, 1e-6)):
        leak = unit_leak(c, reserve, k)
        shift = mp.sqrt(mp.mpf(reserve) + mp.mpf(c))
        start = mp.sqrt(2) * mp.erfinv(2 * mp.mpf(leak) - 1)
        reached = mp.fsum(mp.ncdf(start + j * shift) for j in range(k))
        assert reached <= mp.mpf("1e-12") * k * k * mp.mpf(c)
