"""What a release says of a mechanism → its descriptor, or all that is wrong with it.

A descriptor keeps the parameters, exactly, and not a sampled curve: group privacy asks for orders
far above any grid (theory 4.2). The curves are in `mechanisms/`, the loss in `cost.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise

from dpolicy.errors import InvalidValue
from dpolicy.privacy.certificates import MIN_ORDER
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
from dpolicy.privacy.mechanisms.parameters import (
    MAX_POINTS,
    MAX_STATED_ORDER,
    ParameterReader,
    format_number,
    parameter_suggestion,
)
from dpolicy.privacy.mechanisms.randomized_response import KaryResponse, RandomizedResponse
from dpolicy.privacy.mechanisms.selection import (
    ExponentialMechanism,
    NoisyMaxNoise,
    ReportNoisyMax,
    SparseVector,
)

Mechanism = (
    Gaussian
    | DiscreteGaussian
    | Laplace
    | DiscreteLaplace
    | RandomizedResponse
    | KaryResponse
    | ExponentialMechanism
    | ReportNoisyMax
    | SparseVector
    | DpSgd
    | TreeAggregation
    | Pate
    | DeclaredPure
    | DeclaredZcdp
    | DeclaredGdp
    | DeclaredCurve
)

_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")

#: How far a stated curve may be from convex: the decimals of a printed table are rounded.
CURVE_SLACK = Fraction(1, 1000)


def parse_mechanism(
    fields: Mapping[str, object],
) -> tuple[Mechanism | None, tuple[InvalidValue, ...]]:
    """The descriptor, or None with every problem found."""
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        hint = parameter_suggestion(str(kind), KINDS) or f"; one of {', '.join(sorted(KINDS))}"
        missing = "a mechanism needs a `kind`" if kind is None else f"unknown kind `{kind}`"
        return None, (InvalidValue("M001", missing + hint),)
    reader = ParameterReader(fields, kind)
    reader.allow("kind")
    if reader.allow("data-dependent") and reader.raw("data-dependent") is not False:
        message = "a loss that depends on the data is refused; help: state the data-independent one"
        reader.report("M014", message)
    count = reader.positive_integer("count", default=1)
    rate = None if kind == "dp-sgd" else reader.rate()
    mechanism = KINDS[kind](reader, count, rate)
    problems = reader.finish()
    return (None, problems) if problems else (mechanism, ())


def parse_restatements(
    fields: Mapping[str, object], also: Mapping[str, Mapping[str, object]]
) -> tuple[Mapping[str, Mechanism], tuple[InvalidValue, ...]]:
    """The same mechanism restated for other units: its fields with some replaced."""
    restated: dict[str, Mechanism] = {}
    problems: list[InvalidValue] = []
    allowed = RESTATABLE.get(str(fields.get("kind")), frozenset())
    for unit, changes in also.items():
        frozen = [name for name in changes if name not in allowed]
        for name in frozen:
            message = f"`{name}` cannot be restated for `{unit}`: it is the same for every unit"
            problems.append(InvalidValue("M017", message))
        mechanism, found = parse_mechanism(_restated(fields, changes))
        if mechanism is not None and not frozen:
            restated[unit] = mechanism
        problems.extend(found)
    return restated, tuple(problems)


def _restated(fields: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """A `declared` loss may be restated in another notion, so nothing of the old one is kept."""
    if fields.get("kind") != "declared":
        return {**fields, **changes}
    kept = {name: value for name, value in fields.items() if name not in RESTATABLE["declared"]}
    return {**kept, **changes}


def _gaussian(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    sigma = reader.positive("sigma")
    return Gaussian(sigma, reader.positive("sensitivity", Fraction(1)), count, rate)


def _discrete_gaussian(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    sigma = reader.positive("sigma")
    return DiscreteGaussian(sigma, reader.positive("sensitivity", Fraction(1)), count, rate)


def _laplace(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    scale = reader.positive("scale")
    return Laplace(scale, reader.positive("sensitivity", Fraction(1)), count, rate)


def _discrete_laplace(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    scale = reader.positive("scale")
    return DiscreteLaplace(scale, reader.positive("sensitivity", Fraction(1)), count, rate)


def _randomized_response(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    two, many = reader.allow("truth"), reader.allow("values") or reader.allow("noise")
    reader.allow("noise")
    if two == many:
        message = "`randomized-response` needs either `truth`, or `values` and `noise`"
        reader.report("M009", message)
    elif many:
        values = reader.positive_integer("values", least=2)
        noise = reader.probability("noise", Fraction(0), Fraction(1))
        return KaryResponse(values, noise, count, rate)
    else:
        truth = reader.probability("truth", Fraction(1, 2), Fraction(1))
        return RandomizedResponse(truth, count, rate)
    return RandomizedResponse(Fraction(3, 4))


def _exponential(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    return ExponentialMechanism(reader.positive("epsilon"), count, rate)


def _report_noisy_max(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    epsilon = reader.positive("epsilon")
    why = ""
    if reader.allow("noise") and reader.raw("noise") == "gaussian":
        why = "; help: charge the vector of scores as a `gaussian` with its L2 sensitivity"
    noise = reader.choice("noise", list(NoisyMaxNoise), "M015", why)
    return ReportNoisyMax(epsilon, NoisyMaxNoise(noise), count, rate)


def _sparse_vector(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    threshold = reader.positive("epsilon-threshold")
    queries = reader.positive("epsilon-queries")
    cutoff = reader.positive_integer("cutoff")
    values = reader.positive("epsilon-values") if reader.allow("epsilon-values") else Fraction(0)
    return SparseVector(threshold, queries, cutoff, values, count, rate)


def _dp_sgd(reader: ParameterReader, count: int, _: Fraction | None) -> Mechanism:
    noise = reader.positive("noise-multiplier")
    if not reader.allow("sampling-rate"):
        reader.report("M003", "`dp-sgd` needs `sampling-rate`; help: 1 if every unit is in a batch")
    return DpSgd(noise, reader.rate(), reader.positive_integer("steps"), count)


def _tree_aggregation(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    noise = reader.positive("noise-multiplier")
    steps, participations = (
        reader.positive_integer("steps"),
        reader.positive_integer("participations", default=1),
    )
    return TreeAggregation(noise, steps, participations, count, rate)


def _pate(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    return Pate(reader.positive("sigma"), reader.positive_integer("queries"), count, rate)


def _declared(reader: ParameterReader, count: int, rate: Fraction | None) -> Mechanism:
    stated = [name for name in ("epsilon", "rho", "mu", "renyi") if reader.allow(name)]
    if len(stated) != 1:
        given = "none of them" if not stated else " and ".join(f"`{name}`" for name in stated)
        message = f"`declared` needs one of `epsilon`, `rho`, `mu`, `renyi`, not {given}"
        reader.report("M009", message)
        reader.allow("delta"), reader.allow("xi")
        return DeclaredPure(Fraction(1))
    if stated == ["epsilon"]:
        delta = reader.delta()
        epsilon = reader.not_negative("epsilon") if delta else reader.positive("epsilon")
        return DeclaredPure(epsilon, delta, count, rate)
    if stated == ["rho"]:
        return DeclaredZcdp(reader.positive("rho"), reader.not_negative("xi"), count, rate)
    if stated == ["mu"]:
        return DeclaredGdp(reader.positive("mu"), count, rate)
    return DeclaredCurve(_points(reader), count, rate)


def _points(reader: ParameterReader) -> tuple[tuple[Fraction, Fraction], ...]:
    """The stated curve, sorted; a stand-in if it is not one."""
    stand_in = ((Fraction(2), Fraction(1)),)
    given = reader.raw("renyi")
    if not isinstance(given, Mapping) or not 1 <= len(given) <= MAX_POINTS:
        reader.report("M004", f"`renyi` must map 1 to {MAX_POINTS} orders to divergences")
        return stand_in
    points = [(_order(reader, order), _divergence(reader, value)) for order, value in given.items()]
    if any(order is None or value is None for order, value in points):
        return stand_in
    known = sorted((order, value) for order, value in points if order and value)
    if len({order for order, _ in known}) < len(known):
        reader.report("M009", "`renyi` states one order twice")
        return stand_in
    _check_curve(reader, known)
    return tuple(known)


def _order(reader: ParameterReader, given: object) -> Fraction | None:
    if isinstance(given, str) and _DECIMAL.fullmatch(given):
        given = Fraction(given)  # the keys of JSON are text
    order = reader.number("an order of `renyi`", given)
    if order is not None and not MIN_ORDER <= order <= MAX_STATED_ORDER:
        limits = f"at least {format_number(MIN_ORDER)} and at most {MAX_STATED_ORDER}"
        reader.report("M011", f"order `{format_number(order)}` of `renyi`: orders are {limits}")
        return None
    return order


def _divergence(reader: ParameterReader, given: object) -> Fraction | None:
    value = reader.number("a value of `renyi`", given)
    if value is None:
        return None
    before = len(reader.problems)
    reader.check_size("a value of `renyi`", value)
    return value if len(reader.problems) == before else None


def _check_curve(reader: ParameterReader, points: list[tuple[Fraction, Fraction]]) -> None:
    """Monotone, and (α−1)·divergence convex from its zero at α = 1."""
    for (low, before), (high, after) in pairwise(points):
        if after < before:
            first = f"`{format_number(before)}` at `{format_number(low)}`"
            pair = f"{first} to `{format_number(after)}` at `{format_number(high)}`"
            reader.report("M012", f"`renyi` falls from {pair}; a divergence grows with the order")
            return
    moments = [(Fraction(1), Fraction(0)), *((a, (a - 1) * r) for a, r in points)]
    slopes = [(y - x) / (b - a) for (a, x), (b, y) in pairwise(moments)]
    for (order, _), (steep, next_slope) in zip(points, pairwise(slopes), strict=False):
        if next_slope < steep * (1 - CURVE_SLACK):
            message = f"`renyi` is not log-convex around order `{format_number(order)}`"
            reader.report("M013", f"{message}; help: check the values, or leave out that order")
            return


#: Every kind of mechanism (docs/releases.md), and how it is read.
KINDS: Mapping[str, Callable[[ParameterReader, int, Fraction | None], Mechanism]] = {
    "gaussian": _gaussian,
    "discrete-gaussian": _discrete_gaussian,
    "laplace": _laplace,
    "discrete-laplace": _discrete_laplace,
    "randomized-response": _randomized_response,
    "exponential": _exponential,
    "report-noisy-max": _report_noisy_max,
    "sparse-vector": _sparse_vector,
    "dp-sgd": _dp_sgd,
    "tree-aggregation": _tree_aggregation,
    "pate": _pate,
    "declared": _declared,
}

#: What `also` may change: what is relative to the unit, never the noise that was added.
RESTATABLE: Mapping[str, frozenset[str]] = {
    "gaussian": frozenset({"sensitivity"}),
    "discrete-gaussian": frozenset({"sensitivity"}),
    "laplace": frozenset({"sensitivity"}),
    "discrete-laplace": frozenset({"sensitivity"}),
    "exponential": frozenset({"epsilon"}),
    "report-noisy-max": frozenset({"epsilon"}),
    "sparse-vector": frozenset({"epsilon-threshold", "epsilon-queries", "epsilon-values"}),
    "dp-sgd": frozenset({"noise-multiplier", "sampling-rate"}),
    "tree-aggregation": frozenset({"noise-multiplier", "participations"}),
    "declared": frozenset({"epsilon", "delta", "rho", "xi", "mu", "renyi"}),
}
