"""Certified ε against other methods: never below the truth, and at most 1 % above it.

The truth is computed with 50 digits, or by an inverse Laplace transform without any discretisation
(`tests/reference/loss_curves.py`). Each rounding direction has a canary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from math import comb

import mpmath as mp
import numpy as np
import pytest
from tests.reference import loss_curves as exact

from dpolicy.privacy.loss_distribution import certified_epsilon as certified
from dpolicy.privacy.loss_distribution import fft_composition, loss_atoms, tilted_window
from dpolicy.privacy.loss_distribution.certified_epsilon import certified_epsilon
from dpolicy.privacy.loss_distribution.fft_composition import compose
from dpolicy.privacy.loss_distribution.grid_measure import GridMeasure, split_atoms
from dpolicy.privacy.loss_distribution.loss_run import loss_run
from dpolicy.privacy.mechanisms.declared import (
    DeclaredCurve,
    DeclaredGdp,
    DeclaredPure,
    DeclaredZcdp,
)
from dpolicy.privacy.mechanisms.gaussian import DiscreteGaussian, DpSgd, Gaussian, Pate
from dpolicy.privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.mechanisms.selection import ExponentialMechanism, SparseVector
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

AR, CH = NeighbouringRelation.ADD_REMOVE, NeighbouringRelation.CHANGE
MICRO = Fraction("1e-6")

#: Largest relative distance of a certified ε from the truth.
CLOSE = 0.01

#: Relative error of a reference that is computed with floats.
FLOAT_NOISE = 1e-7


def epsilon_of(*mechanisms: Mechanism, delta: Fraction = MICRO, k: int = 1) -> Fraction | None:
    runs = [loss_run(mechanism, k, AR) for mechanism in mechanisms]
    return None if None in runs else certified_epsilon([run for run in runs if run], delta)


def check_certified(
    epsilon: Fraction | None, delta: Fraction, true_delta: Callable[[float], float]
) -> None:
    """Fail unless the true δ at ε is at most δ, and is above δ at 1 % less."""
    assert epsilon is not None
    at = float(epsilon)
    assert true_delta(at) <= float(delta) * (1 + FLOAT_NOISE), "the certified ε is too small"
    assert true_delta(at * (1 - CLOSE)) > float(delta), "the certified ε is not tight"


@pytest.mark.parametrize("delta", [Fraction("1e-3"), MICRO, Fraction("1e-10")])
@pytest.mark.parametrize(
    ("stated", "count"), [("0.05", 400), ("0.3", 60), ("0.5", 12), ("1", 10), ("2.5", 8)]
)
def test_pure_mechanisms_against_binomial_sums(stated: str, count: int, delta: Fraction) -> None:
    mechanism = DeclaredPure(Fraction(stated), count=count)

    def true_delta(epsilon: float) -> float:
        parts = [(mp.mpf(stated), count)]
        return float(exact.response_delta(parts, mp.mpf(epsilon), exact.no_mechanism))

    with mp.workdps(50):
        check_certified(epsilon_of(mechanism, delta=delta), delta, true_delta)


@pytest.mark.parametrize("kind", ["response", "exponential", "sparse-vector", "discrete-laplace"])
def test_kinds_that_are_randomized_response(kind: str) -> None:
    mechanisms: dict[str, Mechanism] = {
        "response": RandomizedResponse(Fraction(3, 4), count=30),
        "exponential": ExponentialMechanism(Fraction("0.4"), count=30),
        "sparse-vector": SparseVector(Fraction("0.1"), Fraction("0.3"), 5, count=30),
        "discrete-laplace": DiscreteLaplace(Fraction("2.5"), count=30),
    }
    with mp.workdps(50):
        e = mp.log(3) if kind == "response" else mp.mpf("0.4")
        run = loss_run(mechanisms[kind], 1, CH)
        assert run is not None
        check_certified(
            certified_epsilon([run], MICRO),
            MICRO,
            lambda x: float(exact.response_delta([(e, 30)], mp.mpf(x), exact.no_mechanism)),
        )


@pytest.mark.parametrize("delta", [Fraction("1e-4"), MICRO, Fraction("1e-12")])
def test_gaussians_with_responses_against_closed_forms(delta: Fraction) -> None:
    mechanisms = (
        Gaussian(Fraction(3), count=4),
        Pate(Fraction(40), 100),
        DeclaredGdp(Fraction("0.1")),
        DeclaredPure(Fraction("0.2"), count=9),
        DeclaredPure(Fraction("0.7"), count=3),
    )
    with mp.workdps(50):
        mu = mp.sqrt(mp.mpf(4) / 9 + mp.mpf(200) / 1600 + mp.mpf("0.01"))
        parts = [(mp.mpf("0.2"), 9), (mp.mpf("0.7"), 3)]
        check_certified(
            epsilon_of(*mechanisms, delta=delta),
            delta,
            lambda e: float(
                exact.response_delta(parts, mp.mpf(e), lambda x: exact.gaussian_delta(mu, x))
            ),
        )


@pytest.mark.parametrize("sigma", ["0.05", "1", "5", "40", "1000"])
def test_gaussians_alone_against_closed_forms(sigma: str) -> None:
    with mp.workdps(50):
        mu = 1 / mp.mpf(sigma)
        epsilon = epsilon_of(Gaussian(Fraction(sigma)))
        check_certified(epsilon, MICRO, lambda e: float(exact.gaussian_delta(mu, mp.mpf(e))))


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "3"])
def test_one_laplace_mechanism_against_its_closed_form(epsilon: str) -> None:
    for delta in (Fraction("1e-3"), Fraction("1e-5")):
        truth = float(epsilon) + 2 * math.log1p(-float(delta))
        certain = epsilon_of(Laplace(1 / Fraction(epsilon)), delta=delta)
        assert certain is not None
        assert truth <= certain <= truth * (1 + CLOSE)


@pytest.mark.parametrize("rate", ["0.5", "0.01", "0.0001"])
@pytest.mark.parametrize("sigma", ["0.6", "1", "4"])
def test_one_step_of_dp_sgd_against_its_closed_form(sigma: str, rate: str) -> None:
    step = DpSgd(Fraction(sigma), 1, sampling_rate=Fraction(rate))

    def true_delta(epsilon: float) -> float:
        arguments = mp.mpf(sigma), mp.mpf(rate), mp.mpf(epsilon)
        return float(
            max(
                exact.sampled_gaussian_delta(*arguments, removes=removes)
                for removes in (True, False)
            )
        )

    with mp.workdps(50):
        check_certified(epsilon_of(step), MICRO, true_delta)


#: Rows of a table of trainings and releases: mechanism, δ, and ε of another library (PLD).
ROWS: list[tuple[Mechanism, str, str]] = [
    (Gaussian(Fraction(5)), "1e-6", "0.834"),
    (Gaussian(Fraction(1)), "1e-6", "4.887"),
    (Gaussian(Fraction(30), count=100), "1e-6", "1.448"),
    (Laplace(Fraction(10), count=100), "1e-6", "4.693"),
    (DpSgd(Fraction("1.1"), 3510, sampling_rate=Fraction("0.004267")), "1e-5", "1.133"),
    (DpSgd(Fraction(1), 1000, sampling_rate=Fraction("0.01")), "1e-5", "1.828"),
    (DpSgd(Fraction("0.7"), 1000, sampling_rate=Fraction("0.01")), "1e-5", "4.618"),
    (DpSgd(Fraction(2), 2000, sampling_rate=Fraction("0.05")), "1e-5", "5.472"),
    (DpSgd(Fraction(1), 10_000, sampling_rate=Fraction("0.001")), "1e-5", "0.476"),
    (DpSgd(Fraction(1), 1, sampling_rate=Fraction("0.001")), "1e-5", "0.0091"),
    (DpSgd(Fraction(1), 200, sampling_rate=Fraction("0.01")), "1e-5", "0.912"),
    (DpSgd(Fraction("1.1"), 1000, sampling_rate=Fraction("0.004267")), "1e-5", "0.599"),
]


@pytest.mark.parametrize(("mechanism", "delta", "known"), ROWS)
def test_trainings_against_another_library(mechanism: Mechanism, delta: str, known: str) -> None:
    epsilon = epsilon_of(mechanism, delta=Fraction(delta))
    assert epsilon is not None
    # The known value is rounded to three or four digits.
    assert float(epsilon) == pytest.approx(float(known), rel=CLOSE)
    assert round(float(epsilon), len(known.partition(".")[2])) >= float(known)


def moment_of(mechanism: Mechanism, *, removes: bool) -> exact.LogMoment:
    match mechanism:
        case Gaussian(sigma=sigma):
            return exact.gaussian_moment(1 / float(sigma))
        case Laplace(scale=scale):
            return exact.laplace_moment(1 / float(scale))
        case DiscreteGaussian(sigma=sigma):
            return exact.discrete_gaussian_moment(float(sigma))
        case DpSgd(noise_multiplier=noise):
            assert mechanism.sampling_rate is not None
            rate = float(mechanism.sampling_rate)
            return exact.sampled_gaussian_moment(float(noise), rate, removes=removes)
        case DeclaredPure(epsilon=epsilon):
            e = float(epsilon)
            masses = np.array([1, math.exp(-e)]) / (1 + math.exp(-e))
            return exact.atoms_moment(np.array([e, -e]), masses)
    raise AssertionError(mechanism)


def transformed_delta(mechanisms: list[Mechanism], epsilon: float, span: float) -> float:
    """Return the larger δ(ε) of both directions."""
    deltas = []
    for removes in (True, False):
        moments = [(moment_of(m, removes=removes), m.run_count) for m in mechanisms]

        def total(s: exact.Complex, moments: list[tuple[exact.LogMoment, int]] = moments) -> object:
            return sum(count * moment(s) for moment, count in moments)

        deltas.append(exact.inverse_transform(total, epsilon, span, 6001))  # type: ignore[arg-type]
    return max(deltas)


def random_list(source: random.Random) -> list[Mechanism]:
    """Return a Gaussian and up to three other mechanisms. The Gaussian makes moments decay."""

    def number(low: float, high: float) -> Fraction:
        return Fraction(repr(round(math.exp(source.uniform(math.log(low), math.log(high))), 4)))

    count = source.choice([1, 2, 7, 30])
    kinds: list[Callable[[], Mechanism]] = [
        lambda: Laplace(number(3, 60), count=count),
        lambda: DeclaredPure(number(0.02, 0.4), count=count),
        lambda: DiscreteGaussian(number(2, 12)),
        lambda: DpSgd(number(0.7, 3), count * 30, sampling_rate=number(0.002, 0.08)),
    ]
    chosen = source.sample(kinds, source.randint(1, 3))
    return [Gaussian(number(2, 20)), *(build() for build in chosen)]


@pytest.mark.parametrize("seed", range(40))
def test_random_lists_against_the_inverse_transform(seed: int) -> None:
    source = random.Random(seed)
    mechanisms = random_list(source)
    delta = Fraction(source.choice(["1e-3", "1e-5", "1e-7", "1e-9"]))
    sigma = next(float(m.sigma) for m in mechanisms if isinstance(m, Gaussian))
    span = 12 * sigma
    check_certified(
        epsilon_of(*mechanisms, delta=delta),
        delta,
        lambda epsilon: transformed_delta(mechanisms, epsilon, span),
    )


def test_the_inverse_transform_agrees_with_a_closed_form() -> None:
    value = exact.inverse_transform(exact.gaussian_moment(0.5), 1.5, 60.0, 6001)
    with mp.workdps(50):
        truth = float(exact.gaussian_delta(mp.mpf("0.5"), mp.mpf("1.5")))
    assert value == pytest.approx(truth, rel=FLOAT_NOISE)


def geometric_pair(decay: Fraction, shift: int) -> dict[int, Fraction]:
    """Return the masses of t, where the loss is `shift` − 2t steps."""
    masses = {t: (1 - decay) / (1 + decay) * decay**t for t in range(1, shift)}
    return {0: 1 / (1 + decay), **masses, shift: decay**shift / (1 + decay)}


def lattice_delta(masses: dict[int, Fraction], decay: Fraction, shift: int, at: int) -> Fraction:
    """Return δ at the loss of t = `at`, from masses by t: e^(ε − loss) is decay^(2(at − t))."""
    return sum(
        (m * (1 - decay ** (2 * (at - t))) for t, m in masses.items() if t < at), Fraction(0)
    )


@pytest.mark.parametrize("decay", [Fraction(1, 3), Fraction(9, 10)])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (3, 2), (4, 4), (7, 2)])
def test_two_dimensions_of_noise_are_below_one(decay: Fraction, first: int, second: int) -> None:
    """Statement 5 of docs/theory/exact.md, in rational arithmetic."""
    one = geometric_pair(decay, first + second)
    two: dict[int, Fraction] = {}
    for t, mass in geometric_pair(decay, first).items():
        for u, other in geometric_pair(decay, second).items():
            two[t + u] = two.get(t + u, Fraction(0)) + mass * other
    shift = first + second
    for at in range(shift + 1):
        joint, single = (lattice_delta(masses, decay, shift, at) for masses in (two, one))
        assert joint <= single
        assert single == 1 - decay**at, "the closed form of the discrete Laplace distribution"


def test_a_kary_response_has_three_losses() -> None:
    mechanism = KaryResponse(8, Fraction("0.6"), count=5)
    run = loss_run(mechanism, 1, CH)
    assert run is not None
    low, high = 0.6 / 8, 0.4 + 0.6 / 8
    e = math.log(high / low)
    losses = [(e, high), (0.0, 6 * low), (-e, low)]
    sums = {0.0: 1.0}
    for _ in range(5):
        step: dict[float, float] = {}
        for loss, mass in sums.items():
            for more, own in losses:
                key = round(loss + more, 9)
                step[key] = step.get(key, 0.0) + mass * own
        sums = step
    check_certified(
        certified_epsilon([run], MICRO),
        MICRO,
        lambda at: sum(m * max(-math.expm1(at - loss), 0) for loss, m in sums.items()),
    )


def test_leaks_are_part_of_delta() -> None:
    leaky = DeclaredPure(Fraction("0.1"), Fraction("4e-7"), count=2)
    rest = DeclaredPure(Fraction("0.1"), count=2)
    assert epsilon_of(leaky, Gaussian(Fraction(5))) == epsilon_of(
        rest, Gaussian(Fraction(5)), delta=Fraction("2e-7")
    )
    assert epsilon_of(leaky, leaky) is None, "the leaks alone exceed δ"


def test_mechanisms_without_a_pair_have_no_certified_epsilon() -> None:
    curve = DeclaredCurve(((Fraction(2), Fraction(1)),))
    for mechanism in (DeclaredZcdp(Fraction(1)), curve, DiscreteGaussian(Fraction(5), Fraction(2))):
        assert epsilon_of(mechanism) is None
        assert epsilon_of(mechanism, Gaussian(Fraction(5))) is None


def test_sampling_amplifies_one_unit_under_add_remove_only() -> None:
    step = DpSgd(Fraction(1), 10, sampling_rate=Fraction("0.01"))
    whole = loss_run(step.without_sampling(), 1, AR)
    assert loss_run(step, 1, CH) == whole
    assert loss_run(step, 2, AR) == loss_run(step.without_sampling(), 2, AR)
    assert (loss_run(step, 1, AR) or whole).rate == Fraction("0.01")  # type: ignore[union-attr]


def test_work_is_bounded() -> None:
    assert epsilon_of(DpSgd(Fraction(1), 2**22 + 1, sampling_rate=Fraction("0.1"))) is None
    many = [DiscreteGaussian(Fraction(n, 7)) for n in range(20, 20 + certified.MAX_PAIRS + 1)]
    assert epsilon_of(*many) is None
    pure = [DeclaredPure(Fraction(n, 10**4)) for n in range(1, certified.MAX_PAIRS + 2)]
    assert epsilon_of(*pure) == sum(m.epsilon for m in pure), "the sum of pure ε needs no transform"


def test_exact_composition_is_no_filter() -> None:
    """Each of two fixed lists has δ(1) of 1e-6; a choice between them by an output has more."""
    plus, minus = 1 / (1 + math.exp(-0.1)), 1 / (1 + math.exp(0.1))
    hit, gain = 1.36751e-5, 1.05
    miss = math.log((1 - hit) / (1 - hit * math.exp(-gain)))
    rare = [(hit, gain), (1 - hit, miss)]
    leak = [(1e-6, math.inf), (1 - 1e-6, 0.0)]

    def delta(
        after_plus: list[tuple[float, float]], after_minus: list[tuple[float, float]]
    ) -> float:
        branches = [(plus, 0.1, after_plus), (minus, -0.1, after_minus)]
        return sum(
            mass * own * max(-math.expm1(1 - loss - more), 0.0)
            for mass, loss, mechanism in branches
            for own, more in mechanism
        )

    assert delta(rare, rare) == pytest.approx(1e-6, rel=1e-4)
    assert delta(leak, leak) == pytest.approx(1e-6, rel=1e-4)
    assert delta(rare, leak) == pytest.approx(1.475e-6, rel=1e-3)


def test_edges_of_parameters() -> None:
    assert epsilon_of(DeclaredPure(Fraction(0), Fraction("1e-7"))) == 0
    assert (
        epsilon_of(DeclaredPure(Fraction(0), Fraction("1e-7")), Gaussian(Fraction(5))) is not None
    )
    almost = Fraction(2**53 - 1, 2**53)
    whole = epsilon_of(Laplace(Fraction(10), count=9))
    assert epsilon_of(Laplace(Fraction(10), count=9, sampling_rate=almost)) == whole
    assert certified_epsilon([], MICRO) == 0


def test_extreme_parameters_have_an_epsilon_or_none() -> None:
    source = random.Random(1)

    def number(low: float, high: float) -> Fraction:
        return Fraction(repr(float(f"{10 ** source.uniform(low, high):.5g}")))

    for _ in range(60):
        count, rate = source.choice([1, 1000, 10**9]), source.choice([None, number(-9, -0.001)])
        mechanisms: list[Mechanism] = source.sample(
            [
                Gaussian(number(-6, 9), count=count, sampling_rate=rate),
                DiscreteGaussian(number(-3, 8), count=count, sampling_rate=rate),
                Laplace(number(-6, 9), count=count, sampling_rate=rate),
                DiscreteLaplace(number(-3, 6), Fraction(10**6 + 3), count=count),
                DeclaredPure(number(-12, 4), number(-30, -1), sampling_rate=rate),
                KaryResponse(source.choice([2, 3, 10**6]), number(-9, -0.01)),
            ],
            source.randint(1, 3),
        )
        epsilon = epsilon_of(*mechanisms, delta=number(-300, -0.01), k=source.choice([1, 2, 31]))
        assert epsilon is None or epsilon >= 0


# Canaries: each of these broken variants must be caught by the checks above.


def certify_pure() -> None:
    with mp.workdps(50):
        check_certified(
            epsilon_of(DeclaredPure(Fraction("0.05"), count=400)),
            MICRO,
            lambda x: float(
                exact.response_delta([(mp.mpf("0.05"), 400)], mp.mpf(x), exact.no_mechanism)
            ),
        )


def test_canary_losses_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def round_down(atoms: loss_atoms.LossAtoms, step: float) -> GridMeasure:
        below = np.floor(atoms.losses / step).astype(np.int64)
        return GridMeasure(step, below, atoms.masses)

    certify_pure()
    monkeypatch.setattr(tilted_window, "split_atoms", round_down)
    certified._certify.cache_clear()
    with pytest.raises(AssertionError, match="too small"):
        certify_pure()
    certified._certify.cache_clear()


def certify_step() -> None:
    sigma, rate = "1", "0.01"
    step = DpSgd(Fraction(sigma), 1, sampling_rate=Fraction(rate))
    with mp.workdps(50):
        arguments = mp.mpf(sigma), mp.mpf(rate)
        check_certified(
            epsilon_of(step, delta=Fraction("1e-5")),
            Fraction("1e-5"),
            lambda e: float(exact.sampled_gaussian_delta(*arguments, mp.mpf(e), removes=True)),
        )


def test_canary_dropped_truncation_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the Gaussian at 3 σ; with the mass above as infinite loss that would still be sound."""
    certify_step()
    monkeypatch.setattr(loss_atoms, "RADIUS", 3.0)
    honest = loss_atoms._gaussian_atoms(Fraction(1))
    assert honest is not None
    assert honest.infinite > 1e-3
    dropped = loss_atoms.LossAtoms(honest.losses, honest.masses)
    monkeypatch.setattr(certified, "loss_atoms", lambda pair: dropped)
    certified._certify.cache_clear()
    with pytest.raises(AssertionError, match="too small"):
        certify_step()
    certified._certify.cache_clear()


def binomial_gaps(tilt: float) -> np.ndarray:
    """Return composed masses minus exact binomial masses, at the positions of the window."""
    heavy, light = 0.75, 0.25
    measure = GridMeasure(0.125, np.array([1, -1]), np.array([heavy, light]))
    composed = compose([(measure, 80)], tilt, 5.0, 256)
    gaps = []
    for number, mass in enumerate(composed.masses.tolist()):
        ups, odd = divmod(composed.first + number + 80, 2)
        truth = Fraction(0)
        if not odd and 0 <= ups <= 80:
            truth = comb(80, ups) * Fraction(heavy) ** ups * Fraction(light) ** (80 - ups)
        gaps.append(float(Fraction(mass) - truth))
    return np.array(gaps)


@pytest.mark.parametrize("tilt", [0.01, 1.0, 4.0])
def test_composed_masses_are_above_exact_binomial_masses(tilt: float) -> None:
    gaps = binomial_gaps(tilt)
    assert (gaps >= 0).all()
    assert gaps[len(gaps) // 2 :].max() < 1e-8


def test_canary_missing_transform_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fft_composition._convolve
    monkeypatch.setattr(
        fft_composition, "_convolve", lambda *arguments: (honest(*arguments)[0], 0.0)
    )
    assert (binomial_gaps(0.01) < 0).any()


def test_masses_above_the_window_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that ends below most of the mass has a δ of about 1, by `above` alone."""
    measure = GridMeasure(0.125, np.array([1, -1]), np.array([0.75, 0.25]))

    def delta() -> float:
        """Return δ(0) from the losses −4 to 1, of 40 draws with a mean of 2.5."""
        return compose([(measure, 40)], 0.01, -1.5, 40).delta(0.0)

    truth = sum(
        comb(40, ups) * 0.75**ups * 0.25 ** (40 - ups) * -math.expm1(-(2 * ups - 40) / 8)
        for ups in range(20, 41)
    )
    assert delta() >= truth
    monkeypatch.setattr(fft_composition, "_mass_above", lambda *arguments: 0.0)
    assert delta() < truth, "canary: without the mass above the window"


def test_cut_tails_count_as_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    step = DpSgd(Fraction(1), 1, sampling_rate=Fraction("0.0001"))

    def check() -> None:
        with mp.workdps(50):
            arguments = mp.mpf(1), mp.mpf("0.0001")
            check_certified(
                epsilon_of(step),
                MICRO,
                lambda e: float(exact.sampled_gaussian_delta(*arguments, mp.mpf(e), removes=True)),
            )

    check()
    honest = loss_atoms.LossAtoms.cut_tail

    def forget(atoms: loss_atoms.LossAtoms, mass: float) -> loss_atoms.LossAtoms:
        cut = honest(atoms, mass * 500)
        return loss_atoms.LossAtoms(cut.losses, cut.masses, atoms.infinite)

    monkeypatch.setattr(loss_atoms.LossAtoms, "cut_tail", forget)
    certified._certify.cache_clear()
    with pytest.raises(AssertionError, match="too small"):
        check()
    certified._certify.cache_clear()


@pytest.mark.parametrize("step", [0.01, 0.3, 7.0])
def test_split_atoms_keep_both_masses(step: float) -> None:
    losses = np.linspace(-3, 3, 101)
    masses = np.full(101, 0.01)
    measure = split_atoms(loss_atoms.LossAtoms(losses, masses), step)
    assert measure.masses.sum() == pytest.approx(masses.sum(), rel=1e-9)
    second = (measure.masses * np.exp(-measure.losses)).sum()
    assert second == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-9)
