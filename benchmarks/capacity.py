"""Capacity of an (ε, 10⁻⁷) budget under each profile, as factors over `classic` (theory 2.4).

There are three workloads: Gaussians (total ρ), Laplace mechanisms of ε = 0.1 (their number), and
DP-SGD with rate 0.01 and noise 1 (number of steps). The rows marked `not sound` show the cost of
soundness: no cumulative rule can use them. A last table has steps of DP-SGD for which `anchored`
holds less than `classic`, or much more.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import PURE, quanta_down, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms.gaussian import DpSgd, Gaussian
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    STATIC_ORDERS,
    BudgetBound,
    Profile,
    anchor_order,
    bound_for_budget,
    conversion_cost,
)
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

DELTA = Fraction("1e-7")
EPSILONS = (3, 5, 7, 10, 15, 20)


def bound_without_split(epsilon: Fraction, orders: tuple[Fraction, ...]) -> BudgetBound:
    """Return a bound whose orders all use the whole δ: sound for one order, not for several."""
    limits = [(renyi(order), epsilon - conversion_cost(order, DELTA, 1.0)) for order in orders]
    usable = [(certificate, quanta_down(limit)) for certificate, limit in limits if limit >= 0]
    thresholds = [*usable, (PURE, quanta_down(epsilon))]
    return BudgetBound(tuple((threshold,) for threshold in thresholds), Fraction(0))


def bounds(epsilon: int) -> dict[str, BudgetBound]:
    """Return the bounds to compare, by profile."""
    budget = EpsilonDelta(Fraction(epsilon), DELTA)
    anchor = anchor_order(budget.epsilon, DELTA)
    return {
        "classic": bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS),
        "anchored": bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS),
        "one order α*": bound_without_split(budget.epsilon, (anchor,)),
        "no split (not sound)": bound_without_split(budget.epsilon, DEFAULT_ORDERS),
        "no split, dense (not sound)": bound_without_split(budget.epsilon, STATIC_ORDERS),
    }


def capacity(bound: BudgetBound, mechanism: Mechanism) -> float:
    """Return how often the mechanism fits, in the best certificate."""
    certificates = tuple(clause[0][0] for clause in bound.clauses)
    each = cost(mechanism, 1, NeighbouringRelation.ADD_REMOVE, certificates)
    fitting = [
        clause[0][1] / amount
        for clause, amount in zip(bound.clauses, each, strict=True)
        if amount is not None
    ]
    return max(fitting)


WORKLOADS: dict[str, Mechanism] = {
    "Gaussian": Gaussian(Fraction(100), Fraction(1)),
    "Laplace": Laplace(Fraction(10), Fraction(1)),
    "DP-SGD": DpSgd(Fraction(1), 1, sampling_rate=Fraction(1, 100)),
}

#: ε and δ of a budget, noise and sampling rate of DP-SGD.
TRAININGS = (
    ("8", "1e-5", "0.6", "0.01"),
    ("8", "1e-5", "0.7", "0.01"),
    ("8", "1e-5", "1", "0.01"),
    ("2", "1e-6", "1", "0.001"),
)


def print_trainings() -> None:
    """Print how many whole steps of DP-SGD each profile holds."""
    print("\nsteps of DP-SGD that fit (ε, δ): classic, anchored")
    for epsilon, delta, noise, rate in TRAININGS:
        budget = EpsilonDelta(Fraction(epsilon), Fraction(delta))
        step = DpSgd(Fraction(noise), 1, sampling_rate=Fraction(rate))
        classic, anchored = (
            int(capacity(bound_for_budget(budget, profile, DEFAULT_ORDERS), step))
            for profile in (Profile.CLASSIC, Profile.ANCHORED)
        )
        label = f"({epsilon}, {delta}), noise {noise}, rate {rate}"
        print(f"{label:<40}{classic:>10,}{anchored:>10,}{anchored / classic - 1:>+10.1%}")


def main() -> None:
    """Print the tables."""
    print("total ρ of Gaussians that fits (ε, 1e-7) under `classic`")
    gaussian = WORKLOADS["Gaussian"]
    totals = [capacity(bounds(e)["classic"], gaussian) * 0.5e-4 for e in EPSILONS]
    print("   " + "  ".join(f"ε={e}: {rho:.4f}" for e, rho in zip(EPSILONS, totals, strict=True)))
    print("\nfactors over `classic`: Gaussian / Laplace / DP-SGD")
    print(f"{'profile':<30}" + "".join(f"{f'ε={e}':>19}" for e in EPSILONS))
    tables = {e: bounds(e) for e in EPSILONS}
    for name in tables[3]:
        cells = []
        for e in EPSILONS:
            reference, chosen = tables[e]["classic"], tables[e][name]
            factors = [capacity(chosen, m) / capacity(reference, m) for m in WORKLOADS.values()]
            cells.append(" / ".join(f"{factor:.2f}" for factor in factors))
        print(f"{name:<30}" + "".join(f"{cell:>19}" for cell in cells))
    print_trainings()


if __name__ == "__main__":
    main()
