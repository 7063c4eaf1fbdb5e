"""Capacity of an (ε, 10⁻⁷) budget under each profile, as a share of the exact limit (theory 2.4).

The limit is what a fixed list of mechanisms satisfies (`loss_grids.py`; the closed formula for
Gaussians). `free anchor` is `anchored` as policies with defaults 1 and 2 have it, `anchored` is
that of defaults 3 with its reserves, `gaussian` is the profile with most of the mass on reserves,
and `tuned` is tuned for the workload and the budget. `rdp limit` uses the best order with all of δ:
it is not sound for adaptive costs, and no union of Rényi filters passes it. All columns have the
newest costs. A second table has steps of DP-SGD, and a third one compares with `classic` over a
grid of trainings. The last one has the price of monotonicity.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from random import Random

from benchmarks.loss_grids import (
    LossGrid,
    compose,
    delta,
    discrete_gaussian_grid,
    laplace_grid,
    largest_count,
    pure_grid,
    sampled_gaussian_grid,
)

from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import PURE, quanta_down, renyi
from dpolicy.privacy.conversion import gaussian_log_delta
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.cost_rules import NEWEST_RULES
from dpolicy.privacy.mechanisms.declared import DeclaredPure
from dpolicy.privacy.mechanisms.gaussian import DiscreteGaussian, DpSgd, Gaussian
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.tuned_shares import tuned_shares
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    STATIC_ORDERS,
    BudgetBound,
    Profile,
    anchor_order,
    bound_for_budget,
    conversion_cost,
    kappa,
)
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

DELTA = Fraction("1e-7")
EPSILONS = (1, 3, 5, 10, 20)


def bound_without_split(budget: EpsilonDelta) -> BudgetBound:
    """Return a bound whose orders all use the whole δ: not sound for adaptive costs."""
    orders = {*STATIC_ORDERS, anchor_order(budget.epsilon, budget.delta)}
    limits = [(o, budget.epsilon - conversion_cost(o, budget.delta, 1.0)) for o in sorted(orders)]
    usable = [(renyi(order), quanta_down(limit)) for order, limit in limits if limit >= 0]
    thresholds = [*usable, (PURE, quanta_down(budget.epsilon))]
    return BudgetBound(tuple((threshold,) for threshold in thresholds), Fraction(0))


def anchored_bound(budget: EpsilonDelta) -> BudgetBound:
    """Return the bound of `anchored` with defaults 3."""
    shares = anchored_shares(DEFAULT_ORDERS)
    return bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS, None, shares)


def bound_with_free_anchor(budget: EpsilonDelta) -> BudgetBound:
    """Return a bound with ¾ of the mass on α* itself: sound, and not monotone in (ε, δ)."""
    epsilon, delta_ = budget.epsilon, budget.delta
    usable = [o for o in DEFAULT_ORDERS if conversion_cost(o, delta_, kappa(o)) <= epsilon]
    total = sum(kappa(order) for order in usable)
    weights = [(anchor_order(epsilon, delta_), 0.9 * 0.75)]
    weights += [(order, 0.9 * 0.25 * kappa(order) / total) for order in usable]
    limits = [(o, epsilon - conversion_cost(o, delta_, weight)) for o, weight in weights]
    thresholds = [(renyi(o), quanta_down(limit)) for o, limit in limits if limit >= 0]
    return BudgetBound(tuple((t,) for t in [*thresholds, (PURE, quanta_down(epsilon))]), delta_)


BOUNDS: dict[str, Callable[[EpsilonDelta], BudgetBound]] = {
    "classic": lambda budget: bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS),
    "free anchor": lambda budget: bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS),
    "anchored": anchored_bound,
    "gaussian": lambda budget: bound_for_budget(budget, Profile.GAUSSIAN, DEFAULT_ORDERS),
    "rdp limit": bound_without_split,
}


def tuned_bound(mechanisms: Sequence[Mechanism], budget: EpsilonDelta) -> BudgetBound:
    """Return the bound of a policy with one budget that is tuned for mechanisms in equal parts."""
    points = ((budget.epsilon, budget.delta),)
    mix = tuple((mechanism, Fraction(1)) for mechanism in mechanisms)
    shares = tuned_shares(mix, NeighbouringRelation.ADD_REMOVE, points, DEFAULT_ORDERS)
    return bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS, None, shares)


def spent_shares(bound: BudgetBound, mechanism: Mechanism) -> list[float]:
    """Return the part of each threshold that one mechanism spends."""
    certificates = tuple(clause[0][0] for clause in bound.clauses)
    each = cost(mechanism, 1, NeighbouringRelation.ADD_REMOVE, certificates, NEWEST_RULES)
    return [
        amount / limit if limit else math.inf
        for ((_, limit),), amount in zip(bound.clauses, each.amounts, strict=True)
    ]


def capacity(bound: BudgetBound, mechanism: Mechanism) -> float:
    """Return how often the mechanism fits, in the best certificate."""
    return 1 / min(spent_shares(bound, mechanism))


GAUSSIAN = Gaussian(Fraction(10))

#: Single workloads: a mechanism and its loss distribution.
WORKLOADS: dict[str, tuple[Mechanism, Callable[[], LossGrid]]] = {
    "discrete Gaussian σ 10": (
        DiscreteGaussian(Fraction(10)),
        lambda: discrete_gaussian_grid(10),
    ),
    "Laplace 0.1": (Laplace(Fraction(10)), lambda: laplace_grid(10)),
    "pure 0.1": (DeclaredPure(Fraction("0.1")), lambda: pure_grid(0.1)),
    "DP-SGD q .005 σ 1.685 × 1,000": (
        DpSgd(Fraction("1.685"), 1000, sampling_rate=Fraction("0.005")),
        lambda: sampled_gaussian_grid(1.685, 0.005).repeated(1000),
    ),
    "DP-SGD q .01 σ 1 × 100": (
        DpSgd(Fraction(1), 100, sampling_rate=Fraction("0.01")),
        lambda: sampled_gaussian_grid(1, 0.01).repeated(100),
    ),
}


def gaussian_limit(epsilon: float, delta_: Fraction = DELTA) -> float:
    """Return how many Gaussians with σ = 10 the exact formula allows, in fractions."""
    low, high = 1e-3, 100.0
    for _ in range(80):
        mu = math.sqrt(low * high)
        is_within = gaussian_log_delta(mu, epsilon) <= math.log(delta_)
        low, high = (mu, high) if is_within else (low, mu)
    return 100 * low * low


@lru_cache(maxsize=1)
def mix() -> list[tuple[Mechanism, LossGrid]]:
    """Return the mechanisms of the paper's workload W4: six kinds at three levels of noise."""
    mechanisms: list[tuple[Mechanism, LossGrid]] = []
    for sigma, scale, noise, epsilon in (
        ("97.82", "100", "16.50", "0.01"),
        ("25.76", "10", "4.447", "0.1"),
        ("7.235", "4", "1.685", "0.25"),
    ):
        gaussian = Gaussian(Fraction(sigma)), sampled_gaussian_grid(float(sigma))
        # Randomized response and the sparse vector technique cost their pure ε.
        pure = DeclaredPure(Fraction(epsilon)), pure_grid(float(epsilon))
        laplace = Laplace(Fraction(scale)), laplace_grid(float(scale))
        training = DpSgd(Fraction(noise), 1000, sampling_rate=Fraction("0.005"))
        steps = sampled_gaussian_grid(float(noise), 0.005).repeated(1000)
        mechanisms += [gaussian, gaussian, laplace, pure, pure, (training, steps)]
    return mechanisms


def mix_order(seed: int) -> list[int]:
    """Return a random order of the mechanisms of the mix, each equally often."""
    random, order = Random(seed), []
    for _ in range(60):
        block = list(range(18))
        random.shuffle(block)
        order += block
    return order


def mix_limit(order: Sequence[int], epsilon: int) -> int:
    """Return how many releases of a random order the exact limit allows."""

    def is_within(count: int) -> bool:
        counts = [order[:count].count(number) for number in range(18)]
        parts = [(grid, n) for (_, grid), n in zip(mix(), counts, strict=True) if n]
        return delta(compose(parts), epsilon) <= DELTA

    return largest_count(is_within, 16)


def mix_capacity(bound: BudgetBound, order: Sequence[int]) -> int:
    """Return how many releases of a random order fit before the first one that is refused."""
    each = [spent_shares(bound, mechanism) for mechanism, _ in mix()]
    counts = []
    for clause in range(len(bound.clauses)):
        total, count = 0.0, 0
        while count < len(order) and (total := total + each[order[count]][clause]) <= 1:
            count += 1
        counts.append(count)
    return max(counts)


def repetition_limit(grid: LossGrid, epsilon: int) -> int:
    """Return how many runs of one mechanism the exact limit allows."""
    return largest_count(lambda count: delta(grid.repeated(count), epsilon) <= DELTA)


def rows() -> Iterator[tuple[str, int, float, list[float]]]:
    """Yield workload, ε, limit, and the capacity of each profile."""
    budgets = {epsilon: EpsilonDelta(Fraction(epsilon), DELTA) for epsilon in EPSILONS}
    bounds = {e: [make(budget) for make in BOUNDS.values()] for e, budget in budgets.items()}
    for epsilon in EPSILONS:
        offered = [*bounds[epsilon], tuned_bound([GAUSSIAN], budgets[epsilon])]
        limit = gaussian_limit(epsilon)
        yield "Gaussian σ 10", epsilon, limit, [capacity(bound, GAUSSIAN) for bound in offered]
    for name, (mechanism, make_grid) in WORKLOADS.items():
        grid = make_grid()
        for epsilon in EPSILONS:
            offered = [*bounds[epsilon], tuned_bound([mechanism], budgets[epsilon])]
            count = repetition_limit(grid, epsilon)
            yield name, epsilon, count, [int(capacity(bound, mechanism)) for bound in offered]
    orders = [mix_order(seed) for seed in range(3)]
    for epsilon in EPSILONS:
        limit = statistics.fmean(mix_limit(order, epsilon) for order in orders)
        mechanisms = [mechanism for mechanism, _ in mix()]
        offered = [*bounds[epsilon], tuned_bound(mechanisms, budgets[epsilon])]
        counts = [
            statistics.fmean(mix_capacity(bound, order) for order in orders) for bound in offered
        ]
        yield "W4, mean of 3 orders", epsilon, limit, counts


#: ε and δ of a budget, noise and sampling rate of DP-SGD.
TRAININGS = (
    ("1", "1e-5", "1", "0.001"),
    ("2", "1e-6", "0.8", "0.001"),
    ("2", "1e-6", "1", "0.001"),
    ("8", "1e-5", "0.6", "0.01"),
    ("8", "1e-5", "0.7", "0.01"),
    ("8", "1e-5", "1", "0.01"),
    ("20", "1e-7", "0.6", "0.05"),
)

#: ε, δ, noise and rates of the grid of trainings.
GRID = (
    ("0.5", "1", "2", "3", "5", "8", "10", "20"),
    ("1e-5", "1e-6", "1e-7", "1e-8"),
    ("0.6", "0.7", "0.8", "1", "1.2", "1.5", "2"),
    ("0.001", "0.002", "0.005", "0.01", "0.02", "0.05"),
)


def training_steps(name: str, training: Sequence[str]) -> int:
    """Return how many whole steps of DP-SGD fit a budget under a profile."""
    epsilon, delta_, noise, rate = map(Fraction, training)
    bound = BOUNDS[name](EpsilonDelta(epsilon, delta_))
    return int(capacity(bound, DpSgd(noise, 1, sampling_rate=rate)))


def print_trainings() -> None:
    """Print steps of DP-SGD, and where `anchored` holds less than `classic`."""
    names = ("classic", "free anchor", "anchored")
    print(f"\n{'steps of DP-SGD':<33}" + "".join(f"{name:>13}" for name in names))
    for training in TRAININGS:
        label = "({}, {}), noise {}, rate {}".format(*training)
        steps = [training_steps(name, training) for name in names]
        print(f"{label:<33}" + "".join(f"{count:>13,}" for count in steps))
    print("\nall trainings of the grid against `classic`")
    grid = list(product(*GRID))
    classic = [training_steps("classic", training) for training in grid]
    for name in names[1:]:
        steps = [training_steps(name, training) for training in grid]
        pairs = [(new / old - 1, old) for new, old in zip(steps, classic, strict=True) if old]
        worse = [change for change, _ in pairs if change < 0]
        started = sum(1 for new, old in zip(steps, classic, strict=True) if new and not old)
        print(
            f"{name}: {len(worse)} of {len(pairs)} hold less, by {-statistics.median(worse):.1%} in"
            f" the median and {-min(worse):.1%} at most,"
            f" {sum(c < -0.1 for c in worse)} by more than 10 %;"
            f" median change of all {statistics.median(c for c, _ in pairs):+.1%};"
            f" {started} of {len(grid) - len(pairs)} that hold no step hold some,"
            f" {sum(c == -1 for c in worse)} that hold steps hold none"
        )


def print_monotonicity() -> None:
    """Print the mean share of Gaussians over many budgets, with a free anchor for comparison."""
    epsilons = ("0.25", "0.5", "1", "1.5", "2", "3", "4", "5", "6", "8", "10", "15", "20")
    budgets = [
        EpsilonDelta(Fraction(epsilon), Fraction(delta_))
        for epsilon in epsilons
        for delta_ in ("1e-5", "1e-6", "1e-7", "1e-8", "1e-9")
    ]
    print("\nmean share of the exact limit, Gaussians at ε from 0.25 to 20 and δ from 1e-9 to 1e-5")
    for name, bound in {"free anchor with ¾": bound_with_free_anchor, **BOUNDS}.items():
        shares = [
            capacity(bound(b), GAUSSIAN) / gaussian_limit(float(b.epsilon), b.delta)
            for b in budgets
        ]
        print(f"{name:<20}{statistics.fmean(shares):.3f}, at least {min(shares):.3f}")


def main() -> None:
    """Print the tables."""
    print(f"share of the exact limit at δ = {float(DELTA)}")
    print(
        f"{'workload':<32}{'ε':>4}{'limit':>9}"
        + "".join(f"{name:>13}" for name in (*BOUNDS, "tuned"))
    )
    for name, epsilon, limit, counts in rows():
        cells = "".join(f"{count / limit:>13.3f}" if limit else f"{'–':>13}" for count in counts)
        print(f"{name:<32}{epsilon:>4}{limit:>9.4g}{cells}", flush=True)
    print_trainings()
    print_monotonicity()


if __name__ == "__main__":
    main()
