"""Registry entries: exports are valid entries, and imports never lower a charge."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from dpolicy.balances.enforced_policy import enforce
from dpolicy.cli.main import exit_code
from dpolicy.decisions.completion import complete_meaning
from dpolicy.decisions.decide import charges_at_most, charges_by_region
from dpolicy.decisions.resolution import complete_or_none, resolve_or_reject
from dpolicy.integrations.registry import (
    EMBEDDED_MEANING_PREFIX,
    EMBEDDED_RELEASE_PREFIX,
    PROBLEMS,
    RegistryImportOptions,
    entry_text,
    is_registry_entry,
    registry_entry,
    release_body_from_entry,
)
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.loss_arrays import add_saturating, row_to_loss
from dpolicy.privacy.loss_distribution.certified_epsilon import certified_epsilon
from dpolicy.privacy.loss_distribution.loss_run import loss_run
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.meaning import write_out
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import node_to_plain
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source, read_nodes

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data" / "registry"
PAGE = ROOT / "docs" / "integrations" / "registry.md"
VALIDATOR = Draft7Validator(
    yaml.safe_load((DATA / "schema.yaml").read_text("utf-8")),
    format_checker=Draft7Validator.FORMAT_CHECKER,
)
CURATOR = ("Bureau of Examples", "Government")
POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7, relation: RELATION}
units: {user: {}, user-month: {period: month}, user-day: {period: day}}
schema:
  attributes: {zip: {risk: low}, diagnosis: {risk: high}}
  partitions: {country: {values: [CH, DE, FR]}}
  labels: {stage: {values: [final, tuning], default: final}}
policies:
  - {name: global, kind: custom, when: always, units: [user, user-month, user-day],
     budget: {epsilon: 2}}
  - {name: learning, kind: custom, when: 'mechanism == "gaussian" || by == "ada"', unit: user,
     budget: {epsilon: 1}}
  - {name: per-attribute, kind: attribute, unit: user,
     budgets: {low: {epsilon: 1}, high: {rho: 0.1}}}
  - name: stage
    kind: extension
    settings:
      - {name: final, when: 'labels.stage == "final"', budget: same}
      - {name: any, when: always, budget: {times: 2}}
"""

unhurried = settings(deadline=None, max_examples=60)


def compile_with(relation: str = "add-remove") -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", POLICY.replace("RELATION", relation))])


POLICIES = (compile_with("add-remove"), compile_with("change"))


def export_entry(release: Release, policy: CompiledPolicy) -> tuple[dict[str, Any], str]:
    meaning = complete_or_none(release, policy)
    assert meaning is not None
    entry = registry_entry(release, meaning, policy, "2026-10-28", "allowed", CURATOR)
    return entry, entry_text(entry)


def read_entry(text: str) -> dict[str, Any]:
    """Parse an entry with the strict YAML reader of dpolicy."""
    diagnostics = DiagnosticCollector()
    node = read_nodes(Source("entry.yaml", text), diagnostics.report)
    assert node is not None and not diagnostics.sorted_diagnostics
    values: dict[str, Any] = node_to_plain(node)
    return values


def without_release(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without its embedded release."""
    deployment = {**entry["deployment"], "implementation": {}}
    return {**entry, "deployment": deployment}


def make_release(*mechanisms: Mapping[str, Any], **fields: Any) -> Release:
    return parse_request({"release": "r1", **fields, "mechanisms": list(mechanisms)})


# Strategies

amounts = st.integers(1, 4000).map(lambda n: Fraction(n, 1000))
kinds = st.one_of(
    st.fixed_dictionaries({"kind": st.just("gaussian"), "sigma": amounts.map(lambda a: a + 1)}),
    st.fixed_dictionaries({"kind": st.just("laplace"), "scale": amounts.map(lambda a: a + 1)}),
    st.fixed_dictionaries({"kind": st.just("declared"), "epsilon": amounts}),
    st.fixed_dictionaries(
        {"kind": st.just("declared"), "epsilon": amounts, "delta": st.just(Fraction("1e-9"))}
    ),
    st.fixed_dictionaries({"kind": st.just("declared"), "rho": amounts}),
    st.fixed_dictionaries({"kind": st.just("declared"), "mu": amounts}),
    st.just({"kind": "declared", "renyi": {"2": Fraction("0.1"), "8": Fraction("0.4")}}),
    st.just(
        {
            "kind": "dp-sgd",
            "noise-multiplier": Fraction(1),
            "sampling-rate": Fraction("0.01"),
            "steps": Fraction(1000),
        }
    ),
)
mechanisms = st.fixed_dictionaries(
    {"mechanism": kinds, "unit": st.sampled_from(["user", "user", "user-month", "user-day"])},
    optional={
        "attributes": st.sampled_from([["zip"], ["diagnosis", "zip"]]),
        "labels": st.sampled_from([{"stage": "final"}, {"stage": "tuning"}]),
        "time": st.sampled_from([{"from": "2026-01-01", "to": "2026-02-10"}]),
        "where": st.sampled_from([[{"country": ["CH"]}], [{"country": ["DE", "FR"]}]]),
        "relation": st.sampled_from(["add-remove", "change"]),
        "additive": st.just(True),
    },
)


def with_relation(fields: dict[str, Any]) -> dict[str, Any]:
    """State the relation of a noise multiplier, which not every policy accepts without it."""
    if fields["mechanism"]["kind"] == "dp-sgd":
        return {"relation": "add-remove", **fields}
    return fields


releases = st.builds(
    lambda bodies, by: make_release(*map(with_relation, bodies), **({"by": by} if by else {})),
    st.lists(mechanisms, min_size=1, max_size=3),
    st.sampled_from(["", "ada"]),
)
policies = st.sampled_from([0, 1])


@unhurried
@given(releases, policies)
def test_an_exported_entry_satisfies_the_schema(release: Release, number: int) -> None:
    entry, text = export_entry(release, POLICIES[number])
    assert yaml.safe_load(text) == entry
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))] == []
    assert is_registry_entry(read_entry(text))
    assert not is_registry_entry(release.body)


def test_the_schema_can_fail() -> None:
    entry, _ = export_entry(
        make_release({"mechanism": {"kind": "declared", "rho": 1}, "unit": "user"}), POLICIES[0]
    )
    entry["deployment"]["basic"]["publication_date"] = "28/10/2026"
    entry["deployment"]["privacy_loss"]["privacy_parameters"]["mu"] = 1
    assert len(list(VALIDATOR.iter_errors(entry))) == 2


# import(export(x)) charges at least as much as x


def charges_at_least(imported: Release, original: Release, policy: CompiledPolicy) -> bool:
    """Return whether `imported` charges no rule less than `original`, in any block."""
    section = enforce(policy).cumulative

    def charges(release: Release) -> Any:
        mechanisms = resolve_or_reject(release, enforce(policy))
        matches = [section.compiled.index.match(m.predicate_input) for m in mechanisms]
        return charges_by_region(section, mechanisms, matches)

    return charges_at_most(section, charges(original), charges(imported))


@unhurried
@given(releases, policies)
def test_an_import_charges_every_rule_at_least_what_the_release_did(
    release: Release, number: int
) -> None:
    policy = POLICIES[number]
    body, problems = release_body_from_entry(
        read_entry(export_entry(release, policy)[1]), policy, RegistryImportOptions()
    )
    assert not problems and body is not None
    assert charges_at_least(parse_request(body), release, policy)
    assert body == write_out(release.body, complete_meaning(release, policy))


def test_the_comparison_of_charges_can_fail() -> None:
    more = make_release({"mechanism": {"kind": "declared", "rho": Fraction("0.2")}, "unit": "user"})
    less = make_release({"mechanism": {"kind": "declared", "rho": Fraction("0.1")}, "unit": "user"})
    labelled = make_release({**less.body["mechanisms"][0], "attributes": ["zip"]})
    elsewhere = make_release({**less.body["mechanisms"][0], "where": [{"country": ["CH"]}]})
    assert charges_at_least(more, less, POLICIES[0]) and not charges_at_least(
        less, more, POLICIES[0]
    )
    assert charges_at_least(labelled, less, POLICIES[0]) and not charges_at_least(
        less, labelled, POLICIES[0]
    )
    assert charges_at_least(less, elsewhere, POLICIES[0]) and not charges_at_least(
        elsewhere, less, POLICIES[0]
    )


def total_losses(release: Release, policy: CompiledPolicy) -> list[Any]:
    """Return the loss of all mechanisms of a release together, by unit."""
    section = enforce(policy).cumulative
    rows = reduce(add_saturating, [m.costs for m in resolve_or_reject(release, enforce(policy))])
    return [row_to_loss(row, section.certificates) for row in rows]


@unhurried
@given(releases, policies)
def test_without_its_release_an_entry_is_charged_the_stated_loss(
    release: Release, number: int
) -> None:
    """The charge is equal up to one quantum for each mechanism.

    This does not apply if ε was converted at a δ, or if the ledger raised a cost to keep costs
    monotone, which it does for additive mechanisms on samples.
    """
    policy = POLICIES[number]
    entry, _ = export_entry(release, policy)
    body, problems = release_body_from_entry(
        read_entry(entry_text(without_release(entry))), policy, RegistryImportOptions()
    )
    loss = entry["deployment"].get("privacy_loss")
    if loss is None:
        assert {p.code for p in problems} == {"G001"}
        return
    stated = loss["privacy_parameters"]
    assert not problems and body is not None
    [fields] = body["mechanisms"]
    assert fields["unit"] == loss["privacy_unit"] and fields["attributes"] == ["diagnosis", "zip"]
    assert {k: v for k, v in fields["mechanism"].items() if k != "kind"} == {
        name: Fraction(repr(value)) for name, value in stated.items()
    }
    raised = any(m.additive and m.kind == "dp-sgd" for m in release.mechanisms)
    if raised or ("rho" not in stated and "delta" in stated):
        return
    position = ["user", "user-month", "user-day"].index(loss["privacy_unit"])
    imported = total_losses(parse_request(body), policy)[position]
    original = total_losses(release, policy)[position]
    for after, before in zip(imported.amounts, original.amounts, strict=True):
        assert after >= before - len(release.mechanisms)
    assert imported.delta >= original.delta


# Entries of other organisations


def test_the_entry_of_wikimedia() -> None:
    entry = read_entry((DATA / "wikimedia.yaml").read_text("utf-8"))
    policy = compile_policy(
        [Source("p.yaml", POLICY.replace("RELATION", "add-remove").replace("user", "device"))]
    )
    _, problems = release_body_from_entry(entry, policy, RegistryImportOptions())
    assert [p.code for p in problems] == ["G004"]
    body, problems = release_body_from_entry(entry, policy, RegistryImportOptions(times=1))
    assert not problems and body is not None
    assert body["release"] == "current-pageviews-wikimedia-foundation-2023"
    [fields] = body["mechanisms"]
    assert fields["unit"] == "device-day"
    assert fields["mechanism"] == {"kind": "declared", "rho": Fraction("0.015"), "count": 1}


def test_the_entry_of_the_census() -> None:
    entry = read_entry((DATA / "census.yaml").read_text("utf-8"))
    _, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert [p.code for p in problems] == ["G003"]
    assert "`user`, `user-month`, `user-day`" in problems[0].message
    body, problems = release_body_from_entry(
        entry, POLICIES[0], RegistryImportOptions("user", NeighbouringRelation.CHANGE)
    )
    assert not problems and body is not None
    assert body["mechanisms"][0]["mechanism"] == {"kind": "declared", "rho": Fraction("2.63")}
    assert body["mechanisms"][0]["relation"] == "change"
    assert charges_at_least(
        parse_request(
            release_body_from_entry(entry, POLICIES[1], RegistryImportOptions("user"))[0] or {}
        ),
        parse_request(
            release_body_from_entry(
                entry, POLICIES[1], RegistryImportOptions("user", NeighbouringRelation.CHANGE)
            )[0]
            or {}
        ),
        POLICIES[1],
    )


def test_an_entry_states_the_certified_epsilon() -> None:
    training = {
        "kind": "dp-sgd",
        "noise-multiplier": Fraction(1),
        "sampling-rate": Fraction("0.001"),
        "steps": 10_000,
    }
    release = make_release({"mechanism": training, "unit": "user", "relation": "add-remove"})
    entry, _ = export_entry(release, POLICIES[0])
    loss = entry["deployment"]["privacy_loss"]
    assert entry["deployment"]["dp_variant"] == {"variant_name": "Approximate DP"}
    run = loss_run(release.mechanisms[0].mechanism, 1, NeighbouringRelation.ADD_REMOVE)
    assert run is not None
    stated = loss["privacy_parameters"]
    certified = certified_epsilon([run], Fraction(repr(stated["delta"])))
    assert certified is not None
    assert stated["epsilon"] == float(certified)
    assert "exact (loss distribution)" in loss["privacy_parameters_details"]


def make_entry(variant: str | None, parameters: Any, unit: Any = "User level") -> dict[str, Any]:
    return {
        "url_slug": "theirs",
        "deployment": {
            "dp_variant": {"variant_name": variant},
            "privacy_loss": {"privacy_unit": unit, "privacy_parameters": parameters},
            "deployment_model": {"release_type": "One release"},
        },
    }


@pytest.mark.parametrize(
    ("variant", "parameters", "fields"),
    [
        ("Pure DP", {"epsilon": 1.5}, {"epsilon": "1.5"}),
        ("Pure DP", {"epsilon": 1, "delta": 1e-6}, {"epsilon": "1", "delta": "1e-6"}),
        ("Approximate DP", {"epsilon": 1, "delta": "1e-10"}, {"epsilon": "1", "delta": "1e-10"}),
        ("Zero-concentrated DP", {"rho": 0.5}, {"rho": "0.5"}),
        ("Zero Concentrated DP", {"rho": 1, "epsilon": 9, "delta": 1e-5}, {"rho": "1"}),
        ("Zero-concentrated DP", {"epsilon": 2, "delta": 1e-5}, {"epsilon": "2", "delta": "1e-5"}),
        ("Renyi DP", {"epsilon": 2, "delta": 1e-5}, {"epsilon": "2", "delta": "1e-5"}),
        ("Gaussian DP", {"mu": 0.3}, {"mu": "0.3"}),
        (None, {"rho": 0.1}, {"rho": "0.1"}),
    ],
)
def test_which_parameters_are_charged(
    variant: str | None, parameters: dict[str, Any], fields: dict[str, str]
) -> None:
    body, problems = release_body_from_entry(
        make_entry(variant, parameters), POLICIES[0], RegistryImportOptions()
    )
    assert not problems and body is not None
    exact = {name: Fraction(value) for name, value in fields.items()}
    assert body["mechanisms"][0]["mechanism"] == {"kind": "declared", **exact}
    assert body["mechanisms"][0]["unit"] == "user"
    assert parse_request(body).id == "theirs"


@pytest.mark.parametrize(
    ("entry", "codes"),
    [
        ({}, ["G001"]),
        ({"deployment": []}, ["G001", "G001", "G004", "G001"]),
        (make_entry("Pure DP", {"epsilon": "two"}), ["G001"]),
        (make_entry("Pure DP", {"epsilon": "1e9999999999"}), ["G001"]),
        (make_entry("Pure DP", [1]), ["G001"]),
        (make_entry("Pure DP", {}), ["G002"]),
        (make_entry("Pure DP", {"epsilon": -1}), ["M005"]),
        (make_entry("Approximate DP", {"epsilon": 1}), ["G002"]),
        (make_entry("Approximate DP", {"epsilon": 1, "delta": 2}), ["M010"]),
        (make_entry("Zero-concentrated DP", {"rho": 1, "delta": 1e-5}), ["G002"]),
        (make_entry("Renyi DP", {"epsilon": 1}), ["G002"]),
        (make_entry("Custom", {"epsilon": 1}), ["G002"]),
        (make_entry(None, {"epsilon": 1}), ["G002"]),
        (make_entry("Pure DP", {"epsilon": 1}, "household"), ["G003"]),
        (make_entry("Pure DP", {"epsilon": 1}, None), ["G001"]),
        (make_entry("Custom", {"epsilon": 1}, "household"), ["G003", "G002"]),
    ],
)
def test_all_problems_are_reported(entry: dict[str, Any], codes: list[str]) -> None:
    body, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert body is None
    assert [p.code for p in problems] == codes
    assert all(p.code in PROBLEMS or p.code.startswith("M") for p in problems)


def test_problems_name_the_path_of_the_value() -> None:
    entry = make_entry("Pure DP", {"epsilon": "two", "delta": True}, "household")
    del entry["url_slug"], entry["deployment"]["deployment_model"]
    _, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert [str(problem) for problem in problems] == [
        "G003: deployment.privacy_loss.privacy_unit: the policy has no unit `household`; help: pass"
        " `--unit` with one of `user`, `user-month`, `user-day`",
        "G001: deployment.privacy_loss.privacy_parameters.epsilon: expected a number, got `two`",
        "G001: deployment.privacy_loss.privacy_parameters.delta: expected a number, got `True`",
        "G004: deployment.deployment_model: the entry does not state that it covers one release;"
        " help: pass `--times` with the number of publications for the same unit",
        "G001: the entry: `url_slug` and `name` are missing",
    ]


def entry_with_release(text: str, **parameters: Any) -> dict[str, Any]:
    entry = make_entry("Zero-concentrated DP", parameters or {"rho": 0.1})
    entry["deployment"]["implementation"] = {
        "additional_information": f"Hello\n{EMBEDDED_RELEASE_PREFIX}{text}"
    }
    return entry


VALID_RELEASE = (
    '{"mechanisms":[{"mechanism":{"kind":"declared","rho":0.1},"unit":"user"}],"release":"r1"}'
)


@pytest.mark.parametrize(
    ("entry", "codes"),
    [
        (entry_with_release(VALID_RELEASE), []),
        (entry_with_release(VALID_RELEASE, rho=0.2), ["G006"]),
        (
            entry_with_release(f"{VALID_RELEASE}\n{EMBEDDED_RELEASE_PREFIX}{VALID_RELEASE}"),
            ["G005"],
        ),
        (entry_with_release("{"), ["G005"]),
        (entry_with_release("[]"), ["G005"]),
        (entry_with_release("7"), ["G005"]),
        (entry_with_release(VALID_RELEASE.replace("rho", "sigma")), ["G005"]),
        (entry_with_release("[" * 100_000), ["G005"]),
    ],
)
def test_an_embedded_release_is_checked(entry: dict[str, Any], codes: list[str]) -> None:
    body, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert [p.code for p in problems] == codes
    assert (body is None) == bool(codes)


GAUSSIAN = (
    '{"mechanisms":[{"mechanism":{"kind":"gaussian","sigma":40},"unit":"user"}],"release":"r1"}'
)
DAILY = (
    '{"mechanisms":[{"mechanism":{"epsilon":0.001,"kind":"declared"},"unit":"user-day"}],'
    '"release":"r1"}'
)


@pytest.mark.parametrize(
    ("variant", "stated", "release", "notion"),
    [
        ("Pure DP", {"epsilon": 10}, GAUSSIAN, "epsilon"),
        ("Pure DP", {"epsilon": 10}, VALID_RELEASE, "epsilon"),
        ("Gaussian DP", {"mu": 10}, VALID_RELEASE, "mu"),
        ("Pure DP", {"epsilon": 20}, DAILY, "epsilon"),
        ("Zero-concentrated DP", {"rho": 20}, DAILY, "rho"),
    ],
)
def test_an_embedded_release_has_a_bound_in_the_stated_notion(
    variant: str, stated: dict[str, Any], release: str, notion: str
) -> None:
    """Otherwise the small cost in another notion, or for a finer unit, would be charged."""
    entry = entry_with_release(release)
    entry["deployment"] |= make_entry(variant, stated)["deployment"]
    body, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert body is None
    [problem] = problems
    assert problem.code == "G006"
    assert f"has no bound for unit `user` in the stated notion `{notion}`" in problem.message


def test_an_embedded_release_was_published_once() -> None:
    _, problems = release_body_from_entry(
        entry_with_release(VALID_RELEASE), POLICIES[0], RegistryImportOptions(times=3)
    )
    assert [p.code for p in problems] == ["G004"]


def test_an_entry_has_the_recorded_unit_of_its_release() -> None:
    """The policy no longer has the unit for which the recorded release was stated."""
    release = make_release({"mechanism": {"kind": "declared", "rho": 1}, "unit": "household"})
    household = POLICY.replace("RELATION", "add-remove").replace("user:", "household: {}, user:", 1)
    meaning = complete_or_none(release, compile_policy([Source("policy.yaml", household)]))
    assert meaning is not None
    entry = registry_entry(release, meaning, POLICIES[0], "2026-10-28", "allowed", CURATOR)
    text = entry_text(entry)
    assert "privacy_unit: household" in text
    assert not list(VALIDATOR.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("user-day: {period: day}", "user-day: {period: month}", "the unit `user-day`"),
        ("{country: {values: [CH, DE, FR]}}", "{zone: {values: [CH]}}", "the partition `country`"),
    ],
)
def test_an_embedded_release_is_not_read_by_other_definitions(
    old: str, new: str, name: str
) -> None:
    """A reader whose `user-day` is a month would charge a month the loss of one day."""
    release = make_release(
        {
            "mechanism": {"kind": "declared", "rho": Fraction("0.1")},
            "unit": "user-day",
            "where": [{"country": ["CH"]}],
        }
    )
    entry = read_entry(export_entry(release, POLICIES[0])[1])
    text = POLICY.replace("RELATION", "add-remove").replace(
        "budget: {epsilon: 2}", "budget: {rho: 9}"
    )
    same, other = (
        compile_policy([Source("policy.yaml", policy)]) for policy in (text, text.replace(old, new))
    )
    assert text.replace(old, new) != text
    assert release_body_from_entry(entry, same, RegistryImportOptions())[1] == ()
    body, problems = release_body_from_entry(entry, other, RegistryImportOptions())
    assert body is None
    assert [p.code for p in problems] == ["G005"]
    assert f"uses {name}, which this policy defines otherwise" in problems[0].message


@pytest.mark.parametrize(
    ("meaning", "message"),
    [
        ("{}", "contains no valid meaning"),
        (f"{{}}\n{EMBEDDED_MEANING_PREFIX}{{}}", "contains 2 meanings"),
        (
            '{"calendar":"gregorian","mechanisms":[],"partitions":{},"units":{}}',
            "does not define the unit `user` of the release",
        ),
    ],
)
def test_an_embedded_meaning_is_checked(meaning: str, message: str) -> None:
    entry = entry_with_release(f"{VALID_RELEASE}\n{EMBEDDED_MEANING_PREFIX}{meaning}")
    body, problems = release_body_from_entry(entry, POLICIES[0], RegistryImportOptions())
    assert body is None and {p.code for p in problems} == {"G005"}
    assert message in str(problems[0])


# Commands


@pytest.fixture
def dpolicy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return a function that runs commands in a directory with a ledger of two releases."""
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY.replace("RELATION", "change"), "utf-8")

    def run(line: str, code: int = 0) -> tuple[str, str]:
        assert exit_code(shlex.split(line)) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.out, captured.err

    run("apply policy.yaml --ledger a.db")
    for number, fields in enumerate(("rho: 0.001", "epsilon: 0.1"), 1):
        mechanism = f"{{mechanism: {{kind: declared, {fields}}}, unit: user}}"
        text = f"release: r{number}\nmechanisms: [{mechanism}]\n"
        Path(f"r{number}.yaml").write_text(text, "utf-8")
        run(f"submit r{number}.yaml --ledger a.db")
    return run


def test_a_ledger_survives_a_round_trip(dpolicy: Any) -> None:
    out, err = dpolicy("export --ledger a.db --to registry --curator Us --curator-type Nonprofit")
    entries = list(yaml.safe_load_all(out))
    assert [entry["url_slug"] for entry in entries] == ["r1", "r2"]
    assert not [error for entry in entries for error in VALIDATOR.iter_errors(entry)]
    assert entries[0]["deployment"]["basic"]["data_curators"][0]["data_curator_name"] == "Us"
    assert "to be filled in" in err
    Path("all.yaml").write_text(f"# exported\n---\n{out}", "utf-8")
    dpolicy("apply policy.yaml --ledger b.db")
    dpolicy("import all.yaml --ledger b.db")
    assert dpolicy("budgets --ledger b.db") == dpolicy("budgets --ledger a.db")
    before = dpolicy("budgets --ledger a.db")
    dpolicy("import all.yaml --ledger a.db")  # the ledger already has these releases
    assert dpolicy("budgets --ledger a.db") == before


def test_one_release_is_exported(dpolicy: Any) -> None:
    out, _ = dpolicy("export --ledger a.db --to registry --release r2")
    assert [entry["url_slug"] for entry in yaml.safe_load_all(out)] == ["r2"]
    assert "no release `r9`" in dpolicy("export --ledger a.db --to registry --release r9", 64)[1]
    dpolicy("export --ledger a.db --to csv --release r2", 64)
    assert dpolicy("export --ledger a.db --to csv")[0].count("\n") == 3
    assert dpolicy("export --ledger a.db")[0].count("\n") == 3


def test_a_denied_release_is_not_exported(dpolicy: Any) -> None:
    text = "release: big\nmechanisms: [{mechanism: {kind: declared, epsilon: 9}, unit: user}]\n"
    Path("big.yaml").write_text(text, "utf-8")
    dpolicy("submit big.yaml --ledger a.db", 2)
    assert "was denied" in dpolicy("export --ledger a.db --to registry --release big", 64)[1]
    assert "big" not in dpolicy("export --ledger a.db --to registry")[0]


def test_an_entry_of_another_organisation_is_imported(dpolicy: Any) -> None:
    census = shlex.quote(str(DATA / "census.yaml"))
    assert "G003" in dpolicy(f"import {census} --ledger a.db", 3)[1]
    assert "G003" in dpolicy(f"import {census} --ledger a.db --unit usr", 3)[1]
    line = f"import {census} --ledger a.db --unit user --relation change --label stage=final"
    assert "now exceeded: global" in dpolicy(line)[1]


def test_imports_that_fail(dpolicy: Any) -> None:
    census = shlex.quote(str(DATA / "census.yaml"))
    assert (
        "needs an active policy" in dpolicy(f"import {census} --ledger new.db --unit user", 64)[1]
    )
    dpolicy("import r1.yaml --ledger a.db --unit user", 64)
    dpolicy(f"import {census} --ledger a.db --unit user --label stage", 64)
    assert "R005" in dpolicy(f"import {census} --ledger a.db --unit user --label stage=x", 3)[1]
    Path("twice.yaml").write_text("deployment: {}\n---\nurl_slug: x\ndeployment: {a: 1, a: 2}\n")
    assert "twice.yaml#2:3" in dpolicy("import twice.yaml --ledger a.db", 3)[1]
    Path("mixed.yaml").write_text("deployment: {}\n---\nrelease: x\n")
    assert "mixed.yaml#2: not a registry entry" in dpolicy("import mixed.yaml --ledger a.db", 3)[1]
    Path("long.yaml").write_text("deployment: {}\n" + "---\ndeployment: {}\n" * 120_000)
    assert "larger than" in dpolicy("import long.yaml --ledger a.db", 3)[1]
    Path("empty.yaml").write_text("# nothing\n---\n")
    dpolicy("import empty.yaml --ledger a.db", 3)


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.+?)```", page, re.DOTALL)
    assert [(name, text.count("\n")) for name, text in files] == [
        ("theirs.yaml", 10),
        ("others.yaml", 16),
    ]
    for name, text in files:
        Path(name).write_text(text, "utf-8")
    commands = re.findall(r"^\$ dpolicy (.+)$", page, re.MULTILINE)
    assert len(commands) >= 5
    for line in commands:
        command, _, target = line.partition(" > ")
        assert exit_code(shlex.split(command)) == 0, (line, capsys.readouterr().err)
        out = capsys.readouterr().out
        if target:
            Path(target).write_text(out, "utf-8")


def test_every_problem_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [code for code in PROBLEMS if code not in page] == []
