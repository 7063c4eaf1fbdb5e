"""Ladder of reserves: the certificates with a Gaussian in reserve (theory/reserves, 1 and 2).

Beside a reserve r, a mechanism M costs c_r(M), the least c with

    H_x(M ⊗ N_r) ≤ G(r + c, x) + τ·c   for all real x, in both directions,

where N_r is a Gaussian of variance r that never runs, and G(s, x) is the δ of √s-GDP at x. Costs
add up and fall with r. The reserve 0 is the certificate μ².
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.privacy.certificates import MU_SQUARED, QUANTA_PER_UNIT, Certificate, reserve

#: The sizes of the reserves besides 0, ascending: whole quanta.
RESERVE_SIZES: tuple[Fraction, ...] = tuple(Fraction(2**step, 1000) for step in range(11))

#: The certificates of these reserves, ascending.
RESERVES: tuple[Certificate, ...] = tuple(reserve(size) for size in RESERVE_SIZES)

#: All certificates that share one part of δ, ascending by reserve; the first has the reserve 0.
LADDER: tuple[Certificate, ...] = (MU_SQUARED, *RESERVES)

#: τ: the small leak that a unit of cost contains. Costs and limits both depend on it.
LEAK_RATE = 1e-12


def reserve_quanta(certificate: Certificate) -> int:
    """Return the size of a reserve in quanta, exactly; 0 for the certificate μ²."""
    return int(certificate.order * QUANTA_PER_UNIT)
