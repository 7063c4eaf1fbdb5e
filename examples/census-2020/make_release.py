"""Generator of the 2020 Census as a release: python make_release.py > releases/redistricting.yaml

The numbers are the settings of the production run for the United States, from the public code of
the US Census Bureau (DAS_2020_Redistricting_Production_Code): the global scale of
`person_default.ini`, the geographic shares of `person_US.ini`, and the query shares of the strategy
that this file names, `ProductionCandidate20210527US_mult8_add02_dsepJune3`.

Each of the 65 measurements is a histogram with discrete Gaussian noise. Its ρ is an exact fraction
of the total; the file states it rounded up to twelve decimals, because it can only hold decimals.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from fractions import Fraction

#: Total ρ: one over the square of the global scale, 339/542.
TOTAL = Fraction(542, 339) ** 2

LEVELS = {
    "us": Fraction(104, 4099),
    "state": Fraction(1440, 4099),
    "county": Fraction(447, 4099),
    "tract": Fraction(687, 4099),
    "block-group": Fraction(1256, 4099),
    "block": Fraction(165, 4099),
}

#: Attributes of the histogram of each query. `hhinstlevels` is a coarser `hhgq`.
QUERIES = {
    "total": (),
    "cenrace": ("cenrace",),
    "hispanic": ("hispanic",),
    "votingage": ("votingage",),
    "hhinstlevels": ("hhgq",),
    "hhgq": ("hhgq",),
    "hispanic-cenrace": ("hispanic", "cenrace"),
    "votingage-cenrace": ("votingage", "cenrace"),
    "votingage-hispanic": ("votingage", "hispanic"),
    "votingage-hispanic-cenrace": ("votingage", "hispanic", "cenrace"),
    "detailed": ("hhgq", "votingage", "hispanic", "cenrace"),
}

#: For each level, the numerators of the query shares and their denominator; `us` has no total.
PARTS = {
    "us": ((0, 52, 26, 26, 26, 26, 130, 130, 26, 442, 3213), 4097),
    "state": ((3773, 6, 6, 6, 6, 6, 12, 12, 6, 34, 230), 4097),
    "county": ((3126, 10, 10, 10, 10, 10, 28, 28, 10, 101, 754), 4097),
    "tract": ((1567, 8, 5, 5, 5, 5, 1933, 20, 5, 67, 482), 4102),
    "block-group": ((1705, 3, 3, 3, 3, 3, 1055, 9, 3, 24, 1288), 4099),
    "block": ((5, 9, 5, 5, 5, 5, 21, 21, 5, 71, 3945), 4097),
}

DIGITS = 12


def measurements() -> Iterator[tuple[str, str, tuple[str, ...], Fraction]]:
    """Yield level, query, attributes and exact ρ of every measurement."""
    for level, level_share in LEVELS.items():
        numerators, denominator = PARTS[level]
        for (query, attributes), numerator in zip(QUERIES.items(), numerators, strict=True):
            if numerator:
                query_share = Fraction(numerator, denominator)
                yield level, query, attributes, TOTAL * level_share * query_share


def format_rounded_up(rho: Fraction) -> str:
    """Format ρ as a decimal, rounded up."""
    quanta = math.ceil(rho * 10**DIGITS)
    return f"{quanta // 10**DIGITS}.{quanta % 10**DIGITS:0{DIGITS}}"


def main() -> None:
    """Print the release."""
    lines = ["# Written by make_release.py; change that, not this.", "release: redistricting-2020"]
    lines += ["by: us-census-bureau", "mechanisms:"]
    for level, query, attributes, rho in measurements():
        lines += [
            f"  - name: {level}/{query}",
            f"    mechanism: {{kind: declared, rho: {format_rounded_up(rho)}}}",
            f"    attributes: [{', '.join(attributes)}]",
            f"    labels: {{geolevel: {level}, query: {query}}}",
        ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
