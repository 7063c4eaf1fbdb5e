"""A scoped rule bounds the hybrid of theory 0.2: mechanisms outside of its scope see one database.

The databases have one person with a zip code and a city, one bit each. An analyst asks for the city
by randomized response, and chooses the ε of the question about the zip code from the answer. All
transcripts are enumerated.
"""

from __future__ import annotations

import math
from itertools import product

import pytest
from tests.pdp.builders import body, mechanism, policy

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

HEAD = """
dpolicy: 1
accounting: {delta: 0, uncovered: allow}
units: {user: {}}
schema: {attributes: {zip: {risk: high}, city: {risk: high}}}
"""
RULE = "  - {name: zips, kind: custom, when: '\"zip\" in attributes', unit: user, budget: %s}\n"
BUDGET, CITY_EPSILON = 1.0, 2.0
#: The ε of the question about the zip code, by the answer about the city.
ZIP_EPSILON = {0: 0.5, 1: 1.0}

Database = tuple[int, int]  # the zip code and the city


def answer_probability(epsilon: float, truth: int, answer: int) -> float:
    """Return the probability of an answer of randomized response."""
    high = 1 / (1 + math.exp(-epsilon))
    return high if truth == answer else 1 - high


def transcript_probability(
    transcript: tuple[int, int], zip_database: Database, city_database: Database
) -> float:
    """Return the probability of both answers, each from its own database."""
    city_answer, zip_answer = transcript
    return answer_probability(CITY_EPSILON, city_database[1], city_answer) * answer_probability(
        ZIP_EPSILON[city_answer], zip_database[0], zip_answer
    )


def largest_loss(first: Database, second: Database, *, hybrid: bool) -> float:
    """Return the largest log-ratio of a transcript; in the hybrid the city is always of `first`."""
    return max(
        math.log(
            transcript_probability(t, first, first)
            / transcript_probability(t, second, first if hybrid else second)
        )
        for t in product((0, 1), (0, 1))
    )


def test_the_rule_allows_every_branch() -> None:
    compiled = policy(RULE % f"{{epsilon: {BUDGET}}}", head=HEAD)
    for city_answer, epsilon in ZIP_EPSILON.items():
        point = DecisionPoint(MemoryStore())
        point.apply(compiled)
        assert point.submit(body("city", mechanism(("city",), epsilon=CITY_EPSILON))).allowed
        assert point.submit(body("zip", mechanism(("zip",), epsilon=epsilon))).allowed, city_answer
        (status,) = point.budgets()
        assert status.spent["epsilon"] == epsilon


@pytest.mark.parametrize("first", list(product((0, 1), (0, 1))))
@pytest.mark.parametrize("second", list(product((0, 1), (0, 1))))
def test_the_hybrid_is_within_the_budget(first: Database, second: Database) -> None:
    assert largest_loss(first, second, hybrid=True) <= BUDGET + 1e-12


def test_databases_with_the_same_city_have_the_guarantee() -> None:
    assert largest_loss((0, 0), (1, 0), hybrid=False) <= BUDGET + 1e-12


def test_a_correlated_attribute_is_not_protected() -> None:
    """If a person with another zip code has another city, the transcript tells them apart."""
    assert largest_loss((1, 1), (0, 0), hybrid=False) == pytest.approx(BUDGET + CITY_EPSILON)
