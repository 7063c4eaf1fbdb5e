"""Mechanisms, and the declaration of a mechanism kind.

A mechanism keeps its exact parameters and not a sampled curve, because group privacy evaluates the
curve at orders far above any grid (theory 4.2). A family module defines the classes of its
mechanisms and declares their kinds in `KINDS`; `registry.py` collects them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Self

from dpolicy.privacy.certificates import inflate
from dpolicy.privacy.loss_distribution.loss_pairs import GaussianPair, GeometricPair, LossPair
from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds
from dpolicy.privacy.mechanisms.parameters import ParameterReader
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Parameters of every kind.
COMMON_PARAMETERS = frozenset({"count", "sampling-rate", "data-dependent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism(ABC):
    """A mechanism that runs `count` times, each time on a fresh Poisson sample if it has a rate."""

    #: F of the bound for Poisson samples: 3 in general, 1 where that is proven (theory 3.6, 3.7).
    sampling_factor: ClassVar[int] = 3

    #: F in the second cost rules; None: as in the first.
    tighter_sampling_factor: ClassVar[int | None] = None

    #: Relations under which a sample amplifies.
    sampling_relations: ClassVar[frozenset[NeighbouringRelation]] = frozenset(
        {NeighbouringRelation.ADD_REMOVE}
    )

    count: int = 1
    sampling_rate: Fraction | None = None

    @abstractmethod
    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        """Return the bounds of one run on all data, for a group of `k` units."""

    def tighter_bounds(self, k: int) -> DivergenceBounds:
        """Return the bounds of the second cost rules, where they differ from the first."""
        return self.bounds_without_sampling(k)

    @property
    def run_count(self) -> int:
        """Number of runs of `bounds_without_sampling` that compose to the mechanism."""
        return self.count

    @property
    def is_sampled(self) -> bool:
        """Whether a run uses a Poisson sample. A rate that rounds to the float 1 is no sampling."""
        return self.sampling_rate is not None and float(self.sampling_rate) < 1

    def without_sampling(self) -> Self:
        """Return the mechanism on all data."""
        return replace(self, sampling_rate=Fraction(1)) if self.is_sampled else self

    def single_run(self) -> Mechanism:
        """Return one run on all data: the cache key of the sampled curve, besides the rate."""
        return replace(self, count=1, sampling_rate=None)

    @property
    def gaussian_ratio(self) -> Fraction | None:
        """Δ/σ of one run if it adds continuous Gaussian noise once; None for all other kinds."""
        return None

    def amplification_bounds(self, k: int, rate: Fraction) -> DivergenceBounds | None:
        """Return the bounds of a sampled run by a theorem of this kind; None: use the curve."""
        return None

    def loss_pair(self, k: int) -> tuple[int, LossPair | None]:
        """Return a pair that dominates one run on all data, outside of its leak, for `k` units.

        The number is how many independent draws from the pair one run has. Pure ε gives randomized
        response, μ a Gaussian; without both there is no pair.
        """
        bounds = self.bounds_without_sampling(k)
        if not math.isinf(bounds.pure):
            pure = bounds.pure
            return 1, GeometricPair(inflate(pure) if isinstance(pure, float) else pure)
        if isinstance(bounds.mu_squared, Fraction):
            return 1, GaussianPair(bounds.mu_squared)
        return 1, None


@dataclass(frozen=True, slots=True)
class MechanismKind:
    """Declaration of a mechanism kind: the name, the parameters and the function that reads them.

    The parameters that every kind accepts (`COMMON_PARAMETERS`) are not repeated in `parameters`.
    """

    name: str
    parameters: frozenset[str]

    #: Build the mechanism from its own parameters, the count and the sampling rate.
    build: Callable[[ParameterReader, int, Fraction | None], Mechanism]

    #: The smallest valid set of parameters, as documentation and as test input.
    example: Mapping[str, object]

    #: Parameters that `also` may change: those relative to the unit, never the added noise.
    restatable: frozenset[str] = frozenset()

    #: Exponent with which a noise factor acts on each parameter. Losses fall as noise grows.
    noise_parameters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    #: Parameters that prevent scaling: a mechanism that has one gets no counter-offer by noise.
    unscalable: frozenset[str] = frozenset()

    #: The noise parameter that `dpolicy calibrate` solves for, if any.
    calibrated: str | None = None

    #: Optional parameters by the parameter that selects a variant. If exactly one selector is
    #: present, the optional parameters of the other variants are unknown parameters.
    variants: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))

    #: Relations under which the mechanism is private; None: under all.
    relations: frozenset[NeighbouringRelation] | None = None

    #: Whether a parameter is relative to how much one unit can change a sum. Libraries state it for
    #: `add-remove`, so another relation must be stated beside it.
    needs_stated_relation: bool = False

    #: Allowed parameters by selected variant; None: no variant, or several, are selected.
    _allowed: Mapping[str | None, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        everything = COMMON_PARAMETERS | self.parameters
        optional = frozenset[str]().union(*self.variants.values())
        allowed: dict[str | None, frozenset[str]] = {None: everything}
        for selector, options in self.variants.items():
            allowed[selector] = everything - (optional - options)
        object.__setattr__(self, "_allowed", allowed)

    def allowed_parameters(self, fields: Mapping[str, object]) -> frozenset[str]:
        """Return the names of the parameters that are allowed beside the fields present."""
        selected = [name for name in self.variants if name in fields]
        return self._allowed[selected[0] if len(selected) == 1 else None]
