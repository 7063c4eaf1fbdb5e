"""Cohere's files: round trips keep all values, and conversions never charge less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpolicy.balances.enforced_policy import enforce
from dpolicy.balances.partition_space import (
    ALL_TIME,
    PartitionAxis,
    PartitionSpace,
    build_partition_space,
)
from dpolicy.decisions.resolution import resolve_release
from dpolicy.integrations.cohere import (
    CohereBlock,
    CohereRequest,
    CohereSchema,
    CohereSection,
    blocks_json,
    charged_rules,
    cohere_unit_name,
    dpolicy_unit_name,
    export_blocks,
    export_requests,
    export_schema,
    partitions_from_schema,
    read_blocks,
    read_requests,
    read_schema,
    release_body_from_request,
    requests_json,
    schema_json,
)
from dpolicy.integrations.cohere.cohere_export import _renyi_certificates
from dpolicy.integrations.cohere.cohere_model import (
    PROBLEMS,
    RULES,
    Between,
    CohereDomain,
    CohereRange,
    CohereValue,
    Dnf,
    Eq,
    In,
    Neq,
)
from dpolicy.integrations.cohere.cohere_model import CohereTest as Tested
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.releases.regions import Region, contains
from dpolicy.rules.compiler import CompiledPolicy, compile_policy, load_policy
from dpolicy.text.yaml_reader import Source

DATA = Path(__file__).parent.parent / "data" / "cohere"
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "paper"
ORDERS = tuple(Fraction(order) for order in ("1.5", "2", "8", "64"))

unhurried = settings(deadline=None)

# Naive evaluation of formulas, point by point


def domain_values(domain: CohereDomain) -> list[CohereValue]:
    return (
        list(range(domain.first, domain.last + 1)) if isinstance(domain, CohereRange) else [*domain]
    )


def passes(test: Tested, value: CohereValue) -> bool:
    match test:
        case Eq(value=operand):
            return value == operand
        case Neq(value=operand):
            return value != operand
        case In(values=operands):
            return value in operands
        case Between(first=first, last=last):
            return isinstance(value, int) and first <= value <= last


def selects(dnf: Dnf, point: dict[str, CohereValue]) -> bool:
    return any(all(passes(test, point[name]) for name, test in c.items()) for c in dnf)


def all_points(domains: dict[str, CohereDomain]) -> Iterator[dict[str, CohereValue]]:
    for values in product(*(domain_values(domain) for domain in domains.values())):
        yield dict(zip(domains, values, strict=True))


# Strategies

names = st.sampled_from(["AT", "CH", "DE", "FR", "é", "a b", 'q"'])
rounds = st.integers(0, 40)
ranges = st.tuples(st.integers(-3, 4), st.integers(0, 4)).map(
    lambda e: CohereRange(e[0], e[0] + e[1])
)
listed = st.lists(names | st.integers(0, 5), min_size=1, max_size=4, unique_by=str).map(tuple)
domains_: st.SearchStrategy[CohereDomain] = ranges | listed
costs_ = st.none() | st.integers(0, 10**12).map(lambda n: Fraction(n, 10**9))
intervals = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3)).map(lambda e: (e[0], e[0] + e[1])), max_size=2
).map(tuple)


@st.composite
def schemas(draw: st.DrawFn) -> CohereSchema:
    domains = draw(st.dictionaries(st.sampled_from(["x", "y.z", "w"]), domains_, max_size=3))
    if draw(st.booleans()):
        domains[RULES] = draw(domains_)
    units = draw(st.sampled_from([("User",), ("User", "UserMonth")]))
    orders = draw(st.lists(st.sampled_from(ORDERS), min_size=1, unique=True).map(sorted))
    return CohereSchema(domains, units, draw(st.integers(1, 20)), tuple(orders))


@st.composite
def formulas(draw: st.DrawFn, schema: CohereSchema) -> Dnf:
    def test(domain: CohereDomain) -> Tested:
        value = st.sampled_from(domain_values(domain))
        kinds: list[st.SearchStrategy[Tested]] = [
            value.map(Eq),
            value.map(Neq),
            st.lists(value, max_size=3).map(lambda v: In(tuple(v))),
        ]
        if isinstance(domain, CohereRange):
            ends = st.tuples(value, value).map(lambda e: sorted(map(int, e)))
            kinds.append(ends.map(lambda e: Between(*e)))
        return draw(st.one_of(kinds))

    def conjunction() -> dict[str, Tested]:
        return {n: test(d) for n, d in schema.domains.items() if draw(st.booleans())}

    return tuple(conjunction() for _ in range(draw(st.integers(0, 3))))


@st.composite
def requests_and_schemas(draw: st.DrawFn) -> tuple[CohereRequest, CohereSchema]:
    schema = draw(schemas())
    units = draw(st.lists(st.sampled_from(schema.units), min_size=1, unique=True))
    costs = {unit: tuple(draw(costs_) for _ in schema.orders) for unit in units}
    selection = draw(st.dictionaries(st.sampled_from(schema.units), intervals))
    naturals = st.integers(0, 10**6)
    request = CohereRequest(
        draw(naturals), draw(rounds), draw(naturals), costs, draw(formulas(schema)), selection
    )
    return request, schema


@st.composite
def blocks_and_schemas(draw: st.DrawFn) -> tuple[CohereBlock, CohereSchema]:
    schema = draw(schemas())
    budgets = st.builds(
        EpsilonDelta,
        st.integers(0, 10**6).map(lambda n: Fraction(n, 1000)),
        st.sampled_from([Fraction(0), Fraction("1e-7")]),
    )
    created = draw(rounds)
    block = CohereBlock(
        draw(rounds),
        draw(st.sampled_from(schema.units)),
        created,
        draw(st.none() | rounds.map(lambda age: created + age)),
        draw(st.none() | intervals),
        draw(st.none() | budgets),
        tuple(
            CohereSection(draw(budgets), draw(formulas(schema)))
            for _ in range(draw(st.integers(0, 2)))
        ),
        tuple(draw(st.lists(rounds, max_size=3))),
    )
    return block, schema


def through_text(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


# Properties


@unhurried
@given(schemas())
def test_a_schema_survives_a_round_trip(schema: CohereSchema) -> None:
    assert read_schema(through_text(schema_json(schema))) == (schema, ())


@unhurried
@given(requests_and_schemas())
def test_a_request_survives_a_round_trip(pair: tuple[CohereRequest, CohereSchema]) -> None:
    request, schema = pair
    assert read_requests(through_text(requests_json([request])), schema) == ((request,), ())


@unhurried
@given(blocks_and_schemas())
def test_a_block_survives_a_round_trip(pair: tuple[CohereBlock, CohereSchema]) -> None:
    block, schema = pair
    assert read_blocks(through_text(blocks_json([block])), schema) == ((block,), ())


def space_for(schema: CohereSchema, cohorts: CohereRange | None = None) -> PartitionSpace:
    axes = [
        PartitionAxis(name, (), (domain.first, domain.last + 1))
        if isinstance(domain, CohereRange)
        else PartitionAxis(name, tuple(map(str, domain)), (0, len(domain)))
        for name, domain in schema.domains.items()
        if name != RULES
    ]
    if cohorts is not None:
        axes.append(PartitionAxis("cohort", (), (cohorts.first, cohorts.last + 1)))
    return PartitionSpace(tuple(axes))


def release_regions(body: Any, space: PartitionSpace) -> list[Region]:
    release = parse_request(body)
    regions = [space.region(m.where, m.days_read) for m in release.mechanisms]
    return [Region((space.box,)) if region is None else region for region in regions]


def region_point(point: dict[str, CohereValue], schema: CohereSchema) -> tuple[int, ...]:
    """Return a point in the coordinates of a region: integers, positions in lists, and any day."""
    coordinates = []
    for name, value in point.items():
        domain = schema.domains[name]
        if name == RULES:
            continue
        if isinstance(domain, CohereRange):
            coordinates.append(int(value))
        else:
            coordinates.append(domain.index(value))
    return (*coordinates, ALL_TIME[0])


def plain_request(dnf: Dnf) -> CohereRequest:
    return CohereRequest(1, 0, 1, {"User": (Fraction(1, 10),) * len(ORDERS)}, dnf)


@st.composite
def formulas_and_schemas(draw: st.DrawFn) -> tuple[Dnf, CohereSchema]:
    ascii_ = st.lists(st.sampled_from(["AT", "CH", "DE"]), min_size=1, unique=True).map(tuple)
    numbers = ranges.map(
        lambda r: CohereRange(r.first + 3, r.last + 3)
    )  # names of rules have no minus sign
    kinds: st.SearchStrategy[CohereDomain] = numbers | ascii_
    domains = draw(st.dictionaries(st.sampled_from(["x", "y", RULES]), kinds, max_size=3))
    schema = CohereSchema(domains, ("User",), 12, ORDERS)
    return draw(formulas(schema)), schema


@unhurried
@given(formulas_and_schemas())
def test_a_formula_and_its_region_have_the_same_points(pair: tuple[Dnf, CohereSchema]) -> None:
    dnf, schema = pair
    body, problems = release_body_from_request(plain_request(dnf), schema)
    partitions = {n: d for n, d in schema.domains.items() if n != RULES}
    # `Rules` does not restrict the region if there is no label for rules.
    formula = tuple({n: t for n, t in c.items() if n != RULES} for c in dnf)
    points = list(all_points(partitions))
    expected = {region_point(p, schema) for p in points if selects(formula, p)}
    if body is None:
        assert not expected and [p.code for p in problems] == ["C009"]
        return
    (region,) = release_regions(body, space_for(schema))
    charged = {p for p in (region_point(p, schema) for p in points) if contains(region, p)}
    assert charged == expected


@unhurried
@given(formulas_and_schemas())
def test_each_rule_is_charged_once_in_the_region_of_the_formula(
    pair: tuple[Dnf, CohereSchema],
) -> None:
    dnf, schema = pair
    body, _ = release_body_from_request(plain_request(dnf), schema, rules_label="rules")
    points = list(all_points(dict(schema.domains)))
    if body is None:
        assert not any(selects(dnf, point) for point in points)
        return
    regions = release_regions(body, space_for(schema))
    labels = [fields.get("labels", {}).get("rules") for fields in body["mechanisms"]]
    for point in points:
        rule = str(point[RULES]) if RULES in point else None
        hits = [
            contains(region, region_point(point, schema))
            for region, rules in zip(regions, labels, strict=True)
            if rule is None or rule in rules
        ]
        assert sum(hits) == selects(dnf, point)


@unhurried
@given(formulas_and_schemas())
def test_the_rules_of_a_request_are_those_of_its_points(pair: tuple[Dnf, CohereSchema]) -> None:
    dnf, schema = pair
    rule_tests = tuple({n: t for n, t in c.items() if n == RULES} for c in dnf)
    domain = schema.domains.get(RULES, ())
    expected = [str(v) for v in domain_values(domain) if selects(rule_tests, {RULES: v})]
    assert list(charged_rules(plain_request(dnf), schema)) == expected


# Small files


def load_file(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


def small_schema() -> CohereSchema:
    schema, problems = read_schema(load_file("schema.json"))
    assert schema is not None and not problems
    return schema


def small_requests() -> tuple[CohereRequest, ...]:
    requests, problems = read_requests(load_file("requests_11.json"), small_schema())
    assert requests is not None and not problems
    return requests


def test_a_schema_becomes_partitions_and_orders() -> None:
    schema = small_schema()
    assert partitions_from_schema(schema) == {
        "country": {"values": ["AT", "CH", "DE"]},
        "slot": {"from": 0, "to": 9},
    }
    assert schema.orders == (*ORDERS, Fraction(10**10))


def test_a_request_becomes_a_release() -> None:
    body, problems = release_body_from_request(small_requests()[0], small_schema(), cohort="cohort")
    assert not problems and body is not None
    cohorts = {"from": 0, "to": 10}
    assert body == {
        "release": "5",
        "utility": 42,
        "mechanisms": [
            {
                "mechanism": {
                    "kind": "declared",
                    "renyi": {
                        "1.5": Fraction("1e-9"),  # a release cannot declare a zero cost
                        "2": Fraction("0.02"),
                        "8": Fraction("0.08"),
                        "64": Fraction("0.64"),
                    },
                },
                "unit": "user",
                "also": {
                    "user-month": {
                        "renyi": {
                            "1.5": Fraction("0.0075"),
                            "2": Fraction("0.01"),
                            "8": Fraction("0.04"),
                            "64": Fraction("0.32"),
                        }
                    }
                },
                "where": [
                    {"country": ["CH", "DE"], "slot": {"from": 1, "to": 3}, "cohort": cohorts},
                    {"country": ["CH", "DE"], "slot": {"from": 7, "to": 7}, "cohort": cohorts},
                    {"country": ["AT"], "slot": {"from": 0, "to": 3}, "cohort": cohorts},
                    {"country": ["AT"], "slot": {"from": 5, "to": 9}, "cohort": cohorts},
                ],
            }
        ],
    }


def test_a_request_without_a_selection_is_charged_to_all_users() -> None:
    body, _ = release_body_from_request(small_requests()[1], small_schema(), cohort="cohort")
    assert body is not None and "where" not in body["mechanisms"][0]


def test_blocks_list_the_requests_charged_to_them() -> None:
    blocks, problems = read_blocks(load_file("blocks_11.json"), small_schema())
    assert blocks is not None and not problems
    assert [(b.id, b.request_ids, b.created, b.retired) for b in blocks] == [
        (0, (5,), 0, 12),
        (1, (), 1, None),
    ]
    assert [len(b.sections) for b in blocks] == [2, 0]
    assert through_text(blocks_json(blocks)) == load_file("blocks_11.json")


# Problems


def test_all_problems_of_a_file_are_reported() -> None:
    requests, problems = read_requests(load_file("bad_requests.json"), small_schema())
    assert requests is None
    assert [str(problem) for problem in problems] == [
        "C007: requests[0].request_cost.User: 2 costs for 5 orders",
        "C003: requests[0].request_cost.Household.Rdp.eps_values[3]: expected a number of at least"
        " 0, got `-0.4`",
        "C004: requests[0].request_cost: the schema has no unit `Household`",
        "C001: requests[0].profit: expected an integer from 0 to 1000000000000, got `2.5`",
        "C005: requests[0].dnf.conjunctions[0].predicates.country: `FR` is not in the domain",
        "C004: requests[0].dnf.conjunctions[0].predicates.county: the schema has no attribute"
        " `county`",
        "C005: requests[0].dnf.conjunctions[0].predicates.slot: `5 to 12` is not in the domain",
        "C001: requests[0].dnf.conjunctions[0].predicates.Rules: expected one of Between, Eq, In,"
        " Neq, got `{'Like': 'all'}`",
        "C011: requests[1].request_cost: a request needs the cost for at least one unit",
        "C002: requests[1].dnf: `conjunctions` is missing",
        "C001: requests[2]: expected a map, got `request`",
        "C006: requests: request_id `1` occurs 2 times",
    ]


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**13) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["min", "max", "Rdp", "eps_values", "conjunctions", "predicates", "Eq"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@unhurried
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    """Replace one part of a valid file: the result is a value or problems, never a traceback."""
    kind = data.draw(st.sampled_from(["schema.json", "requests_11.json", "blocks_11.json"]))
    content = load_file(kind)
    holders = [content]
    for holder in holders:  # the list grows during the iteration
        inner = holder.values() if isinstance(holder, dict) else holder
        holders += [item for item in inner if isinstance(item, dict | list) and item]
    holder = data.draw(st.sampled_from(holders))
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    holder[data.draw(st.sampled_from(keys))] = data.draw(junk)
    value: Any
    if kind == "schema.json":
        value, problems = read_schema(content)
    elif kind == "blocks_11.json":
        value, problems = read_blocks(content, small_schema())
    else:
        value, problems = read_requests(content, small_schema())
    assert (value is None) == bool(problems)
    assert all(problem.code in PROBLEMS for problem in problems)
    for request in value or () if kind == "requests_11.json" else ():
        body, request_problems = release_body_from_request(
            request, small_schema(), cohort="cohort", rules_label="rules"
        )
        assert (body is None) == bool(request_problems)


def test_orders_are_passed_if_the_schema_has_other_numbers() -> None:
    data = {**load_file("schema.json"), "accounting_type": {"Rdp": {"eps_values": [0, 0, 0]}}}
    assert [p.code for p in read_schema(data)[1]] == ["C008"]
    assert [p.code for p in read_schema(data, ORDERS)[1]] == ["C007"]
    schema, problems = read_schema(data, ORDERS[:3])
    assert schema is not None and not problems and schema.orders == ORDERS[:3]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dnf": ()}, "C009"),
        ({"dnf": ({"country": In(())},)}, "C009"),
        ({"selection": {"User": ()}}, "C009"),
        ({"attributes": ("a×b",)}, "C021"),
        ({"costs": {"User": (None,) * 5}}, "C011"),
        ({"costs": {"User": (Fraction(2), Fraction(1), Fraction(3), None, None)}}, "M012"),
    ],
)
def test_a_request_that_cannot_be_a_release(changes: dict[str, Any], code: str) -> None:
    fields: dict[str, Any] = {
        "id": 1,
        "created": 0,
        "profit": 1,
        "costs": {"User": (Fraction(1),) * 5},
        "dnf": ({},),
    }
    body, problems = release_body_from_request(
        CohereRequest(**{**fields, **changes}), small_schema(), cohort="cohort"
    )
    assert body is None and [problem.code for problem in problems] == [code]


def test_too_many_boxes_are_refused_quickly() -> None:
    domains: dict[str, CohereDomain] = dict.fromkeys("abcdef", CohereRange(0, 999))
    schema = CohereSchema(domains, ("User",), 12, ORDERS)
    odd = In(tuple(range(1, 999, 2)))
    body, problems = release_body_from_request(
        plain_request((dict.fromkeys("abcdef", odd),)), schema
    )
    assert body is None and [problem.code for problem in problems] == ["C010"]


@pytest.mark.parametrize("name", ["user", "user-month", "user-day", "household"])
def test_units_keep_their_names(name: str) -> None:
    assert dpolicy_unit_name(cohere_unit_name(name)) == name


# Export


def compile_with(**sections: Any) -> CompiledPolicy:
    policy = {
        "dpolicy": 1,
        "accounting": {"delta": 1e-7},
        "units": {"user": {}, "user-month": {"period": "month"}},
        "schema": {
            "attributes": {
                "zip": {"risk": "high"},
                "age": {"risk": "low"},
                "views": {"risk": "low"},
            },
            "labels": {"stage": {"values": ["final", "tuning"], "default": "final"}},
            "partitions": {
                "age": {"from": 0, "to": 3},
                "country": {"values": ["AT", "CH", "DE"]},
                "cohort": {"from": 0, "to": 4},
            },
        },
        "policies": [
            {
                "name": "all",
                "kind": "custom",
                "when": "always",
                "unit": "user",
                "budget": {"epsilon": 9},
            },
            {
                "name": "per",
                "kind": "attribute",
                "units": ["user", "user-month"],
                "budgets": {"low": {"epsilon": 5}, "high": {"epsilon": 2}},
            },
            {
                "name": "unlimited",
                "kind": "custom",
                "when": "always",
                "unit": "user-month",
                "budget": "unlimited",
            },
        ],
        **sections,
    }
    return compile_policy([Source("policy.yaml", json.dumps(policy))])


def make_release(name: str, *mechanisms: dict[str, Any], **fields: Any) -> Any:
    noise = {"kind": "gaussian", "sigma": 20}
    bodies = [{"mechanism": noise, "unit": "user", **mechanism} for mechanism in mechanisms]
    return parse_request({"release": name, "mechanisms": bodies, **fields})


def test_the_policy_of_the_paper_is_exported() -> None:
    policy = load_policy(EXAMPLES / "scope")
    schema, problems = export_schema(policy, window=12)
    assert schema is not None and not problems
    rules = schema.domains[RULES]
    assert isinstance(rules, tuple) and len(rules) == 32
    assert read_schema(through_text(schema_json(schema))) == (schema, ())
    blocks, _ = export_blocks(policy, range(11), window=12)
    assert blocks is not None and read_blocks(blocks_json(blocks), schema) == (blocks, ())
    assert [(b.created, b.retired, b.selection) for b in blocks][-1] == (10, 22, ((10, 10),))
    assert {s.budget.epsilon for s in blocks[0].sections} == {3, 5, Fraction(15, 2), 9, 10}
    release = make_release("7", {"attributes": ["a006", "a000"]}, utility=12)
    requests, _ = export_requests(policy, [release], created=3)
    assert requests is not None and read_requests(requests_json(requests), schema) == (requests, ())
    (request,) = requests
    assert (request.id, request.profit, request.created) == (7, 12, 3)
    assert set(charged_rules(request, schema)) == {
        "global",
        "per-attribute[a006]",
        "per-category[c9, strong]",
    }


where_ = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "age": st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
                lambda e: {"from": min(e), "to": max(e)}
            ),
            "country": st.lists(st.sampled_from(["AT", "CH", "DE"]), min_size=1, unique=True),
            "cohort": st.integers(0, 4).map(lambda n: {"from": n, "to": n}),
        },
    ),
    min_size=1,
    max_size=3,
)
attributes_ = st.sampled_from([["zip"], ["views"], ["views", "zip"]])
mechanism_ = st.fixed_dictionaries(
    {},
    optional={
        "where": where_,
        "attributes": attributes_,
        "time": st.just({"from": "2026-01-10", "to": "2026-01-12"}),
    },
)
POLICY = compile_with()


@unhurried
@given(mechanism_)
def test_an_exported_release_is_charged_in_the_same_region(fields: dict[str, Any]) -> None:
    """The request is charged to the same rules at the same points, at the same cost."""
    release = make_release("a", fields)
    schema, _ = export_schema(POLICY, window=3)
    requests, problems = export_requests(POLICY, [release], created=0)
    assert schema is not None and requests is not None, problems
    (request,) = requests
    assert read_requests(through_text(requests_json(requests)), schema) == (requests, ())
    section = enforce(POLICY).cumulative
    (mechanism,), _ = resolve_release(release, enforce(POLICY), _renyi_certificates(POLICY))
    matched = section.compiled.index.matching_rules(mechanism.predicate_input)
    names = {
        section.compiled.rules[n].name: section.granularities.blocks(mechanism.region, n)
        for n in matched
    }
    del names["unlimited"]
    day = date(2026, 1, 11).toordinal()
    for point in all_points(dict(schema.domains)):
        region = names.get(str(point[RULES]))
        ours = region is not None and contains(region, (*region_point(point, schema)[:-1], day))
        assert selects(request.dnf, point) == ours
    for row, unit in zip(mechanism.costs, ("User", "UserMonth"), strict=True):
        assert request.costs[unit] == tuple(Fraction(int(a), 10**12) for a in row[:-1])


@unhurried
@given(st.lists(mechanism_, min_size=1, max_size=3))
def test_an_exported_release_is_never_charged_less(mechanism_fields: list[dict[str, Any]]) -> None:
    """Several mechanisms together, with cohorts as the selection of privacy units."""
    release = make_release("a", *mechanism_fields)
    schema, _ = export_schema(POLICY, window=3, cohort="cohort")
    requests, problems = export_requests(POLICY, [release], created=0, cohort="cohort")
    assert schema is not None and requests is not None, problems
    (request,) = requests
    section = enforce(POLICY).cumulative
    mechanisms, _ = resolve_release(release, enforce(POLICY), _renyi_certificates(POLICY))
    day = date(2026, 1, 11).toordinal()
    for point in all_points({**schema.domains, "cohort": CohereRange(0, 4)}):
        cohort = int(point.pop("cohort"))
        selected = all(any(a <= cohort <= b for a, b in i) for i in request.selection.values())
        location = (*region_point(point, schema)[:-1], cohort, day)
        costs = [
            m.costs
            for m in mechanisms
            for n in section.compiled.index.matching_rules(m.predicate_input)
            if section.compiled.rules[n].name == point[RULES]
            and section.compiled.rules[n].unit == "user"
            if contains(section.granularities.blocks(m.region, n), location)
        ]
        if costs:
            assert selected and selects(request.dnf, point)
            ours = [
                sum(int(rows[0][order]) for rows in costs) for order in range(len(schema.orders))
            ]
            theirs = request.costs["User"]
            assert all(t is not None and t * 10**12 >= o for t, o in zip(theirs, ours, strict=True))


def test_an_exported_release_can_be_imported_and_submitted() -> None:
    schema, _ = export_schema(POLICY, window=3, cohort="cohort")
    release = make_release(
        "a", {"where": {"cohort": {"from": 1, "to": 2}, "country": "CH"}}, utility=3
    )
    requests, _ = export_requests(POLICY, [release], created=0, cohort="cohort")
    assert schema is not None and requests is not None
    body, problems = release_body_from_request(requests[0], schema, cohort="cohort")
    assert body is not None and not problems
    point = DecisionPoint(MemoryStore())
    point.apply(POLICY)
    assert point.submit(body).allowed
    imported = parse_request(body)
    (one,), (other,) = (
        resolve_release(r, enforce(POLICY), _renyi_certificates(POLICY))[0]
        for r in (release, imported)
    )
    assert one.region == other.region and (one.costs == other.costs).all()
    assert build_partition_space(POLICY).axes[2].name == "cohort"


def test_ids_that_are_not_integers_get_unused_integers() -> None:
    releases = [make_release(name, {}) for name in ("b", "0", "a", "3", "007")]
    requests, _ = export_requests(POLICY, releases, created=0)
    assert requests is not None and [request.id for request in requests] == [1, 0, 2, 3, 4]


def test_all_properties_that_cannot_be_exported_are_reported() -> None:
    base = {"name": "b", "kind": "custom", "when": "always", "unit": "Other", "budget": {"rho": 1}}
    policy = compile_with(
        units={"user": {}, "Other": {}},
        schema={"partitions": {"Rules": {"values": ["a"]}}},
        policies=[
            base,
            {**base, "name": "c", "budget": {"epsilon": 1, "delta": 0}},
            {**base, "name": "d", "budget": {"epsilon": 1, "delta": 1e-7}, "when": 'by == "me"'},
        ],
    )
    assert [p.code for p in export_schema(policy, window=1, cohort="x")[1]] == [
        "C020",
        "C020",
        "C021",
        "C021",
        "C021",
    ]
    assert export_blocks(policy, [1], window=1)[0] is None
    leaky = make_release("x", {"mechanism": {"kind": "declared", "epsilon": 1, "delta": 1e-9}})
    unknown = make_release("y", {"attributes": ["nothing"]})
    twice = [leaky, unknown, leaky]
    assert [p.code for p in export_requests(POLICY, twice, created=0)[1]] == ["C006"]
    assert [p.code for p in export_requests(POLICY, twice[:2], created=0)[1]] == ["C022", "R002"]


def test_a_release_without_a_rule_is_reported() -> None:
    policy = compile_with(
        policies=[
            {
                "name": "z",
                "kind": "custom",
                "when": '"zip" in attributes',
                "unit": "user",
                "budget": {"epsilon": 1},
            },
        ]
    )
    releases = [
        make_release("x", {"attributes": ["views"]}),
        make_release("y", {"attributes": ["zip"]}),
    ]
    requests, problems = export_requests(policy, releases, created=0)
    assert requests is None and [p.code for p in problems] == ["C023"]
