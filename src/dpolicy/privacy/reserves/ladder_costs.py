"""Reserve costs of one run that need quadrature, cached by the parameters of the mechanism.

They are sampled Gaussians, Laplace noise and the discrete Gaussian (theory/reserves, 5). A cost is
`inf` where the quadrature refuses; the closed forms then remain. The modules of the quadrature are
loaded with the first such cost: they need NumPy, which the command line does not load at start.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from dpolicy.privacy.conversion import pure_to_mu_squared
from dpolicy.privacy.reserves.ladder import RESERVE_SIZES
from dpolicy.privacy.reserves.pure_cost import pure_reserve_cost

if TYPE_CHECKING:
    from types import ModuleType

    from dpolicy.privacy.reserves.quadrature import ExcessCurve

#: Costs of one run beside the reserves of the ladder, ascending.
LadderCosts = tuple[float, ...]

#: Largest group and largest μ, ε or 1/σ for which quadrature is tried.
_MAX_SIZE, _MAX_LOSS = 64, 8.0

#: Largest σ of a discrete Gaussian for which it is tried.
_MAX_SIGMA = 2**15

_SIZES = tuple(map(float, RESERVE_SIZES))

#: Costs of a mechanism that has none beside any reserve.
NO_COSTS: LadderCosts = (math.inf,) * len(_SIZES)


@lru_cache(maxsize=4096)
def pure_ladder_costs(epsilon: float) -> LadderCosts:
    """Return the costs of ε-DP, by the closed form."""
    return tuple(pure_reserve_cost(epsilon, size) for size in _SIZES)


@lru_cache(maxsize=1024)
def sampled_gaussian_costs(mu: float, rate: float, size: int) -> LadderCosts:
    """Return the costs of a Gaussian with Δ/σ = μ on a Poisson sample, for a group."""
    if size > _MAX_SIZE or not 1e-6 <= mu <= _MAX_LOSS or rate < 1e-12:
        return NO_COSTS
    return _certify(_load("excess_curves").gaussian_curve(mu, rate), mu * mu, size)


@lru_cache(maxsize=1024)
def laplace_costs(epsilon: float) -> LadderCosts:
    """Return the costs of Laplace noise with Δ/b = ε."""
    if not 1e-6 <= epsilon <= _MAX_LOSS:
        return NO_COSTS
    ceiling = pure_to_mu_squared(epsilon)
    return _certify(_load("excess_curves").laplace_curve(epsilon), ceiling, 1)


@lru_cache(maxsize=1024)
def discrete_gaussian_costs(sigma: float, squared_distance: int) -> LadderCosts:
    """Return the costs of integer Gaussian noise for shifts whose squares sum to a distance.

    A shift of s in one coordinate is a chain of s shifts by one, and coordinates compose.
    """
    size = math.isqrt(squared_distance)
    if size > _MAX_SIZE or not 1 / _MAX_LOSS <= sigma <= _MAX_SIGMA:
        return NO_COSTS
    curve = _load("excess_curves").discrete_gaussian_curve(sigma)
    costs = _certify(curve, 16 / sigma**2, size)
    return tuple(cost * squared_distance / size**2 for cost in costs)


def _certify(curve: ExcessCurve, ceiling: float, size: int) -> LadderCosts:
    return tuple(_load("quadrature").certified_costs(curve, _SIZES, ceiling, size))


@cache
def _load(name: str) -> ModuleType:
    """Import a module of this package that needs NumPy."""
    return import_module(f"dpolicy.privacy.reserves.{name}")
