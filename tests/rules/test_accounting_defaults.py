"""Defaults of policies that state no profile: by number, and without a change of old digests."""

from __future__ import annotations

import pytest

from dpolicy.policy.accounting.accounting_defaults import (
    DEFAULTS,
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.privacy.thresholds import Profile
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

TEXT = """
dpolicy: 1
accounting: {delta: 1e-7%s}
schema: {attributes: {views: {risk: low}}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}
  - {name: views, kind: attribute, unit: user, profile: classic, budgets: {low: {epsilon: 3}}}
"""


def compiled(more: str, defaults: AccountingDefaults) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", TEXT % more)], defaults)


@pytest.mark.parametrize("number", DEFAULTS)
def test_a_text_without_a_profile_gets_the_profile_of_the_defaults(number: int) -> None:
    policy = compiled("", DEFAULTS[number])
    assert policy.accounting.used_profile is DEFAULTS[number].profile
    assert [rule.base.profile for rule in policy.cumulative.rules] == [
        DEFAULTS[number].profile,
        Profile.CLASSIC,
    ]


@pytest.mark.parametrize("number", DEFAULTS)
@pytest.mark.parametrize("profile", (Profile.CLASSIC, Profile.ANCHORED))
def test_a_stated_profile_applies_under_all_defaults(number: int, profile: Profile) -> None:
    policy = compiled(f", profile: {profile}", DEFAULTS[number])
    assert policy.accounting.used_profile is profile
    assert policy.cumulative.rules[0].base.profile is profile


def test_the_digest_of_a_text_without_a_profile_is_that_of_version_0_1() -> None:
    digests = {compiled("", defaults).digest for defaults in DEFAULTS.values()}
    assert len(digests) == 1


def test_texts_with_different_meanings_have_different_digests() -> None:
    """With defaults 3, `classic` is no longer what a text without a profile means."""
    for defaults, count in ((SECOND_DEFAULTS, 2), (NEWEST_DEFAULTS, 3)):
        texts = ("", ", profile: classic", ", profile: anchored")
        assert len({compiled(text, defaults).digest for text in texts}) == count


def test_only_the_newest_defaults_have_another_profile() -> None:
    profiles = [DEFAULTS[number].profile for number in sorted(DEFAULTS)]
    assert profiles == [Profile.CLASSIC, Profile.CLASSIC, Profile.ANCHORED]


def test_a_text_without_accounting_gets_the_defaults() -> None:
    text = (TEXT % "").replace("accounting: {delta: 1e-7}\n", "").replace("epsilon", "rho")
    policy = compile_policy([Source("policy.yaml", text)], NEWEST_DEFAULTS)
    assert policy.accounting.defaults is NEWEST_DEFAULTS
