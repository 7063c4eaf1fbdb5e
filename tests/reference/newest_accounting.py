"""Naive accounting defaults 3 for (ε, δ) budgets: thresholds, costs, displayed ε and exact ε.

Chains and reserves follow docs/theory/thresholds.md and docs/theory/reserves.md with 50 digits. Two
numbers are those of the code, because other tests compare them with their definitions: the costs of
Laplace noise by quadrature (`test_reserve_costs.py`), and the ε that a list of loss pairs certifies
(`test_loss_distribution.py`). The model chooses the list, the group sizes and the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import permutations
from typing import Any

from mpmath import mp
from tests.reference import chains

from dpolicy.privacy.loss_distribution.certified_epsilon import certified_epsilon
from dpolicy.privacy.loss_distribution.loss_pairs import GaussianPair, GeometricPair, LaplacePair
from dpolicy.privacy.loss_distribution.loss_run import LossRun
from dpolicy.privacy.reserves.ladder_costs import laplace_costs
from dpolicy.privacy.shares.anchored_shares import LADDER, anchored_shares, spread_orders

#: The reserves besides 0, and their certificates; the certificate of the reserve 0 is "mu".
SIZES = tuple(Fraction(2**step, 1000) for step in range(11))
LEAKS, RESERVES_SHARE, LEAK_RATE = Fraction(1, 10), Fraction(3, 10), Fraction(1, 10**12)

#: The displayed ε of reserves is a multiple of this step.
STEP = Fraction(1, 10**9)


def key(size: Fraction) -> str:
    """Return the certificate of a reserve."""
    return f"reserve {size}" if size else "mu"


def all_orders(grid: tuple[Fraction, ...]) -> frozenset[Fraction]:
    """Return all orders that a budget may offer."""
    return frozenset((*LADDER, *spread_orders(grid)))


@cache
def thresholds(epsilon: Fraction, delta: Fraction, grid: tuple[Fraction, ...]) -> dict[str, Any]:
    """Return the clauses, the δ-side, what converts each certificate to ε, and the reserves' δ."""
    clauses: list[dict[Any, Fraction]] = [{"pure": epsilon}]
    added: dict[Any, Fraction] = {"pure": Fraction(0)}
    if not delta:
        return {"clauses": tuple(clauses), "delta": Fraction(0), "added": added}
    for order, limit in chains.limits(epsilon, delta, anchored_shares(grid), 1 - LEAKS).items():
        exact = Fraction(mp.nstr(limit, 45))
        added[order] = epsilon - exact
        clauses += [{order: exact}] if exact >= 0 else []
    mass = _eight_digits(RESERVES_SHARE * (1 - LEAKS) * delta)
    total = largest_variance(epsilon, mass)
    clauses += [{key(size): total - size} for size in (Fraction(0), *SIZES) if total >= size]
    return {"clauses": tuple(clauses), "delta": delta * LEAKS, "added": added, "reserved": mass}


def _eight_digits(mass: Fraction) -> Fraction:
    context = Context(prec=8, rounding=ROUND_FLOOR)
    return Fraction(context.divide(Decimal(mass.numerator), Decimal(mass.denominator)))


def real(value: Fraction) -> Any:
    """Return a fraction with all digits."""
    return mp.mpf(value.numerator) / value.denominator


def gaussian_delta(variance: Any, epsilon: Any) -> Any:
    """Return G: the δ of a Gaussian mechanism at ε."""
    mu = mp.sqrt(variance)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def _needs(variance: Any, epsilon: Any) -> Any:
    return gaussian_delta(variance, epsilon) + real(LEAK_RATE) * variance


@cache
def largest_variance(epsilon: Fraction, mass: Fraction) -> Fraction:
    """Return R, the largest variance that a part of δ admits, by bisection."""
    low, high = mp.mpf(0), mp.mpf(1)
    while _needs(high, real(epsilon)) <= real(mass):
        high *= 2
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if _needs(middle, real(epsilon)) <= real(mass) else (low, middle)
    return Fraction(mp.nstr(low, 40))


@cache
def smallest_epsilon(variance: Fraction, mass: Fraction) -> Fraction | None:
    """Return the smallest ε, a multiple of `STEP`, at which a variance needs at most `mass`."""
    if not variance:
        return Fraction(0)
    if LEAK_RATE * variance >= mass:
        return None
    low, high = -1, 1
    while _needs(real(variance), real(high * STEP)) > real(mass):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = _needs(real(variance), real(middle * STEP)) <= real(mass)
        low, high = (low, middle) if is_enough else (middle, high)
    return high * STEP


def pure_costs(epsilon: Any) -> list[Fraction]:
    """Return the costs of ε-DP beside the reserves: section 3 of docs/theory/reserves.md."""
    costs = []
    with mp.workdps(80):
        for size in map(real, SIZES):
            smoothed = gaussian_delta(size, epsilon)
            distance = mp.tanh(epsilon / 2) + 2 * smoothed / (1 + mp.exp(epsilon))
            costs.append(Fraction(mp.nstr(8 * mp.erfinv(distance) ** 2 - size, 40)))
    return costs


def noise_costs(epsilon: Fraction) -> list[Fraction]:
    """Return the costs of Laplace noise beside the reserves, which the code certifies."""
    finite = [cost if cost < 10**6 else 10**6 for cost in laplace_costs(float(epsilon))]
    return list(map(Fraction, finite))


def laplace_notions(epsilon: Any) -> dict[str | Fraction, Fraction]:
    """Return ρ and μ² of Laplace noise: section 2 of docs/theory/tighter-costs.md."""
    mu = 2 * mp.sqrt(2) * mp.erfinv(1 - mp.exp(-epsilon / 2))
    return {
        "rho": Fraction(mp.nstr(epsilon - 1 + mp.exp(-epsilon), 40)),
        "mu": Fraction(mp.nstr(mu**2, 40)),
    }


def along_ladder(
    mu_squared: Fraction | None, columns: Sequence[Sequence[Fraction]]
) -> Iterator[tuple[str, Fraction]]:
    """Yield the smallest cost beside each reserve and all smaller ones."""
    best = [] if mu_squared is None else [mu_squared]
    for place, size in enumerate(SIZES):
        best += [costs[place] for costs in columns]
        if best:
            yield key(size), min(best)


def loss_run(parameters: Mapping[str, Any], k: int, delta: Fraction) -> LossRun | None:
    """Return the loss pair of a mechanism for a group of k; None if only ρ or a curve is known."""
    if delta >= 1:
        return None
    if parameters["kind"] == "laplace":
        return LossRun(LaplacePair(k / Fraction(parameters["scale"])), None, 1, delta)
    if "epsilon" in parameters:
        return LossRun(GeometricPair(k * Fraction(parameters["epsilon"])), None, 1, delta)
    if "mu" in parameters or "sigma" in parameters:
        mu = Fraction(parameters.get("mu", 0)) or 1 / Fraction(parameters["sigma"])
        return LossRun(GaussianPair((k * mu) ** 2), None, 1, delta)
    return None


def exact_epsilon(runs: Sequence[LossRun | None], delta: Fraction) -> Fraction | None:
    """Return the certified ε of runs together; None if one of them has no pair."""
    known = [run for run in runs if run is not None]
    return certified_epsilon(known, delta) if len(known) == len(runs) else None


def is_part(used: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each mechanism is a different one of the reservation, with no larger loss."""
    return any(
        all(_is_within(fields, stated) for fields, stated in zip(used, chosen, strict=True))
        for chosen in permutations(whole, len(used))
    )


def _is_within(used: Mapping[str, Any], stated: Mapping[str, Any]) -> bool:
    new, old = used["mechanism"], stated["mechanism"]
    if {**used, "mechanism": None} != {**stated, "mechanism": None} or new.keys() != old.keys():
        return False
    return all(
        value == old[name]
        or (name in ("epsilon", "mu") and value < old[name])
        or (name in ("sigma", "scale") and value > old[name])
        for name, value in new.items()
    )
