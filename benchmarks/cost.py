"""Time to compute the cost for four units in every certificate, cold and cached."""

from __future__ import annotations

import time
from fractions import Fraction

from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, renyi
from dpolicy.privacy.mechanisms.gaussian import DpSgd, Gaussian
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period

CERTIFICATES = (PURE, *(renyi(order) for order in DEFAULT_ORDERS), RHO, MU_SQUARED)
UNITS = (
    PrivacyUnit("user", "user", None),
    *(PrivacyUnit(f"user-{name}", "user", parse_period(name)) for name in ("month", "week", "day")),
)


def families(n: int) -> dict[str, Mechanism]:
    """Return mechanisms with parameters that depend on `n`, so that no cached cost is used."""
    jitter = Fraction(n, 10**6)
    return {
        "gaussian": Gaussian(Fraction(10) + jitter, Fraction(1)),
        "laplace": Laplace(Fraction(10) + jitter, Fraction(1)),
        "dp-sgd, 10,000 steps": DpSgd(Fraction(2) + jitter, 10_000, sampling_rate=Fraction(1, 100)),
    }


def seconds(mechanism: Mechanism) -> float:
    """Return the time of one `cost_by_unit`."""
    start = time.perf_counter()
    context = GroupContext(UNITS)
    cost_by_unit(mechanism, UNITS[0], NeighbouringRelation.ADD_REMOVE, context, CERTIFICATES)
    return time.perf_counter() - start


def main() -> None:
    """Print medians of 200 calls."""
    print(f"{'mechanism':<24}{'cold µs':>10}{'cached µs':>12}")
    for name in families(0):
        cold = sorted(seconds(families(n)[name]) for n in range(1, 201))[100]
        same = families(1)[name]
        warm = sorted(seconds(same) for _ in range(201))[100]
        print(f"{name:<24}{cold * 1e6:>10.0f}{warm * 1e6:>12.1f}")


if __name__ == "__main__":
    main()
