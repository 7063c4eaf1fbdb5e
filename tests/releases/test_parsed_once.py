"""A release is parsed once on every path from a file, a mapping or HTTP to a decision."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.servers import POLICY, access, token

from dpolicy.allocation.round import allocate
from dpolicy.errors import InvariantBroken, PolicyRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import release_body_in
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases import body as release_body
from dpolicy.releases import release_parser
from dpolicy.releases.python import quick_reader
from dpolicy.releases.release import Release, mark_parsed
from dpolicy.releases.release_format import RELEASE
from dpolicy.releases.release_parser import load_release, release_from_plain, release_with_author
from dpolicy.rules.compiler import compile_policy
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_file import load_access
from dpolicy.service.auth.access_rules import AccessRules, local_access
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.shapes import INVALID
from dpolicy.text.value_checks import value_check
from dpolicy.text.yaml_reader import Report, Source, TextNode

#: Two mechanisms, so that parsing one twice and the other never is not mistaken for once.
MECHANISMS: list[dict[str, Any]] = [
    {"name": "a", "mechanism": {"kind": "declared", "epsilon": 0.001}, "attributes": ["zip"]},
    {"name": "b", "mechanism": {"kind": "declared", "epsilon": 0.002}, "attributes": ["views"]},
]
FILE = """\
release: NAME
mechanisms:
  - {name: a, mechanism: {kind: declared, epsilon: 0.001}, attributes: [zip]}
  - {name: b, mechanism: {kind: declared, epsilon: 0.002}, attributes: [views]}
"""


def plain(name: str) -> dict[str, Any]:
    return {"release": name, "mechanisms": MECHANISMS}


class ParseCounter:
    """Counts how often a release is read, by the format or the quick reader, and its mechanisms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.releases: Counter[str] = Counter()
        self.mechanisms: Counter[str] = Counter()
        self._read = RELEASE.read
        self._parse = release_body.mechanism_from_body
        self.schema = RELEASE.schema
        self.title = RELEASE.title
        monkeypatch.setattr(release_parser, "RELEASE", self)
        monkeypatch.setattr(quick_reader, "mark_parsed", self._count_quick_release)
        for module in (release_parser, release_body, quick_reader):
            monkeypatch.setattr(module, "mechanism_from_body", self._count_mechanism)

    def read(self, node: TextNode, report: Report) -> Any:
        """Read a release in place of the shape `RELEASE`."""
        values = self._read(node, report)
        self.releases["invalid" if values is INVALID else str(values["release"])] += 1
        return values

    def _count_quick_release(self, release: Release) -> Release:
        self.releases[release.id] += 1
        return mark_parsed(release)

    def _count_mechanism(self, fields: Any, position: int) -> Any:
        self.mechanisms[fields["name"]] += 1
        return self._parse(fields, position)

    def assert_once(self, *names: str) -> None:
        """Raise `AssertionError` unless exactly these releases were parsed, each once."""
        assert self.releases == dict.fromkeys(names, 1)
        assert self.mechanisms == {"a": len(names), "b": len(names)}


@pytest.fixture
def point() -> Iterator[DecisionPoint]:
    """A decision point with an active policy."""
    created = DecisionPoint(MemoryStore())
    created.apply(compile_policy([Source("policy.yaml", POLICY)]))
    yield created
    created.close()


@pytest.fixture
def counter(point: DecisionPoint, monkeypatch: pytest.MonkeyPatch) -> ParseCounter:
    """A counter that is installed after the policy is active."""
    return ParseCounter(monkeypatch)


def from_file(folder: Path, name: str) -> Release:
    file = folder / f"{name}.yaml"
    file.write_text(FILE.replace("NAME", name), "utf-8")
    return load_release(file)


def post(point: DecisionPoint, path: str, body: Any, rules: AccessRules | None = None) -> Any:
    """Send a request as the analyst `ana`, or without an access file."""
    app = create_app(point, local_access if rules is None else lambda: rules)
    headers = {"authorization": f"Bearer {token('ana')}"} if rules else {}

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, json=body, headers=headers)

    response = asyncio.run(send())
    assert response.status_code == 200, response.text
    return response.json()


def access_rules(folder: Path) -> AccessRules:
    file = folder / "access.yaml"
    file.write_text(access(), "utf-8")
    return load_access(file)


def submit_file(point: DecisionPoint, folder: Path) -> None:
    assert point.submit(from_file(folder, "r")).allowed


def submit_mapping(point: DecisionPoint, folder: Path) -> None:
    assert point.submit(plain("r")).allowed


def check_mapping(point: DecisionPoint, folder: Path) -> None:
    assert point.check(plain("r")).allowed


def check_file(point: DecisionPoint, folder: Path) -> None:
    assert point.check(from_file(folder, "r")).allowed


def reserve_mapping(point: DecisionPoint, folder: Path) -> None:
    assert point.reserve(plain("r")).allowed


def reserve_file(point: DecisionPoint, folder: Path) -> None:
    assert point.reserve(from_file(folder, "r")).allowed


def import_file(point: DecisionPoint, folder: Path) -> None:
    assert point.import_past(from_file(folder, "r"))


def post_submit(point: DecisionPoint, folder: Path) -> None:
    assert post(point, "/v1/releases", plain("r"))["decision"] == "allow"


def post_reserve(point: DecisionPoint, folder: Path) -> None:
    body = {**plain("r"), "mode": "reserve"}
    assert post(point, "/v1/releases", body)["decision"] == "allow"


def post_check(point: DecisionPoint, folder: Path) -> None:
    assert post(point, "/v1/check", plain("r"))["decision"] == "allow"


def post_submit_as_ana(point: DecisionPoint, folder: Path) -> None:
    assert post(point, "/v1/releases", plain("r"), access_rules(folder))["decision"] == "allow"
    assert release_body_in(point.find_release("r")[1])["by"] == "ana"


PATHS: tuple[Callable[[DecisionPoint, Path], None], ...] = (
    submit_file,
    submit_mapping,
    check_mapping,
    check_file,
    reserve_mapping,
    reserve_file,
    import_file,
    post_submit,
    post_reserve,
    post_check,
    post_submit_as_ana,
)
#: A mapping is not parsed by its caller, so the canary parses it once.
PARSED_BEFORE = tuple(path for path in PATHS if "mapping" not in path.__name__)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_a_release_is_parsed_once(
    path: Callable[[DecisionPoint, Path], None],
    point: DecisionPoint,
    counter: ParseCounter,
    tmp_path: Path,
) -> None:
    path(point, tmp_path)
    counter.assert_once("r")


@pytest.mark.parametrize("path", PARSED_BEFORE, ids=lambda path: path.__name__)
def test_the_canary_that_parses_again_is_caught(
    path: Callable[[DecisionPoint, Path], None],
    point: DecisionPoint,
    counter: ParseCounter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision point that trusts no parsed release parses each one twice."""
    monkeypatch.setattr(Release, "was_parsed_from", lambda release, body: False)
    path(point, tmp_path)
    assert counter.releases == {"r": 2}
    with pytest.raises(AssertionError):
        counter.assert_once("r")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_round_parses_each_release_once(
    point: DecisionPoint, counter: ParseCounter, tmp_path: Path, dry_run: bool
) -> None:
    names = ("r1", "r2", "r3")
    requests: list[Release | dict[str, Any]] = [plain(names[0])]
    requests += [from_file(tmp_path, name) for name in names[1:]]
    assert not allocate(point, requests).not_selected
    counter.assert_once(*names)
    allocate(point, [plain("r4")], dry_run=dry_run)
    assert counter.releases == dict.fromkeys([*names, "r4"], 1)
    # The readers' fold resolves the recorded content once, for all releases that have it.
    assert counter.mechanisms == {"a": 5, "b": 5}


def test_a_round_over_http_parses_each_release_once(
    point: DecisionPoint, counter: ParseCounter
) -> None:
    body = {"releases": [plain("r1"), plain("r2")], "dry-run": True}
    assert len(post(point, "/v1/allocate", body)["selected"]) == 2
    counter.assert_once("r1", "r2")


# The body and the mechanisms of a release agree


def global_loss(point: DecisionPoint) -> float | None:
    return next(s.spent["epsilon"] for s in point.budgets() if s.rule.name == "global")


def with_epsilon(name: str, epsilon: float) -> dict[str, Any]:
    mechanism = {"kind": "declared", "epsilon": epsilon}
    return {"release": name, "mechanisms": [{"mechanism": mechanism, "attributes": ["zip"]}]}


def test_a_release_built_by_hand_is_charged_for_its_body(point: DecisionPoint) -> None:
    cheap, costly = (release_from_plain(with_epsilon("r", e)) for e in (0.001, 0.5))
    by_hand = Release("r", "", None, cheap.mechanisms, costly.body)
    copied = replace(costly, mechanisms=cheap.mechanisms)
    for release in (by_hand, copied):
        assert not release.is_parsed
        assert parse_request(release) == costly
    point.submit(by_hand)
    assert global_loss(point) == 0.5


def test_a_body_that_was_changed_is_parsed_again(point: DecisionPoint) -> None:
    release = release_from_plain(with_epsilon("r", 0.001))
    assert parse_request(release).mechanisms is release.mechanisms
    release.body["mechanisms"][0]["mechanism"]["epsilon"] = Fraction(1, 2)
    assert not release.is_parsed
    point.submit(release)
    assert global_loss(point) == 0.5
    invalid = release_from_plain(with_epsilon("r2", 0.001))
    invalid.body["mechanisms"][0]["mechanism"]["kind"] = "magic"
    with pytest.raises(PolicyRejected, match="unknown kind `magic`"):
        point.submit(invalid)


def test_a_body_that_changes_during_a_request_is_recorded_as_it_was_decided() -> None:
    store = MemoryStore()
    release = release_from_plain(with_epsilon("r", 0.5))

    def edit_and_read_clock() -> datetime:
        release.body["mechanisms"][0]["mechanism"]["epsilon"] = Fraction(1, 1000)
        return datetime(2026, 1, 1, tzinfo=UTC)

    point = DecisionPoint(store, edit_and_read_clock)
    point.apply(compile_policy([Source("policy.yaml", POLICY)]))
    release = release_from_plain(with_epsilon("r", 0.5))
    assert point.submit(release).allowed
    assert global_loss(point) == 0.5
    assert audit_ledger(store).findings == ()


def test_a_changed_id_is_not_recorded(point: DecisionPoint) -> None:
    release = release_from_plain(with_epsilon("r", 0.5))
    object.__setattr__(release, "id", "other")
    assert not release.is_parsed
    assert point.submit(release).release == "r"


def test_the_mechanisms_of_a_parsed_release_cannot_be_changed() -> None:
    (mechanism,) = release_from_plain(
        {
            "release": "r",
            "mechanisms": [
                {
                    "mechanism": {"kind": "gaussian", "sigma": 2},
                    "labels": {"stage": "final"},
                    "also": {"user-month": {"sensitivity": 2}},
                    "where": [{"country": ["CH"]}],
                }
            ],
        }
    ).mechanisms
    for mapping in (mechanism.labels, mechanism.restatements, *mechanism.where):
        changeable: Any = mapping
        with pytest.raises(TypeError, match="does not support item assignment"):
            changeable["stage"] = "tuning"


def test_an_author_is_set_without_parsing(counter: ParseCounter) -> None:
    release = release_from_plain(plain("r"))
    changed = release_with_author(release, "ana")
    assert (changed.by, changed.body["by"], release.by) == ("ana", "ana", "")
    assert changed.is_parsed and release_with_author(changed, "ana") is changed
    counter.assert_once("r")
    assert parse_request(changed.body) == changed
    by_hand = replace(release, body=release.body)
    assert not release_with_author(by_hand, "ana").is_parsed
    with pytest.raises(PolicyRejected, match=r"release\.by:1:1: error P011"):
        release_with_author(release, "änne")


# A mapping is read as strictly as a file


def codes_with_paths(error: PolicyRejected) -> list[tuple[str, str]]:
    diagnostics = [d for d in error.diagnostics if isinstance(d, Diagnostic)]
    return [(diagnostic.code, diagnostic.span.source.name) for diagnostic in diagnostics]


def test_all_problems_of_a_mapping_are_reported_with_their_paths() -> None:
    body = {
        "release": "r",
        "by": None,
        "unknown": 1,
        "utility": "high",
        "mechanisms": [
            {"mechanism": {"kind": "magic"}, "attributes": "zip"},
            {"mechanism": {"kind": "declared", "epsilon": Fraction(10**70 + 1)}},
            {"mechanism": {"kind": "declared", "epsilon": 1}, "where": {"age": {"from": 1}}},
        ],
    }
    with pytest.raises(PolicyRejected) as caught:
        parse_request(body)
    assert set(codes_with_paths(caught.value)) == {
        ("P007", "release.by"),
        ("P006", "release"),
        ("P007", "release.utility"),
        ("P007", "release.mechanisms[0].attributes"),
        ("P009", "release.mechanisms[1].mechanism.epsilon"),
        ("P008", "release.mechanisms[2].where.age"),
    }


def test_problems_of_mechanisms_name_the_mechanism() -> None:
    mechanisms = [{"mechanism": {"kind": kind}} for kind in ("magic", "magic", "gaussian")]
    with pytest.raises(PolicyRejected) as caught:
        parse_request({"release": "r", "mechanisms": mechanisms})
    assert codes_with_paths(caught.value) == [
        ("M001", "release.mechanisms[0].mechanism"),
        ("M001", "release.mechanisms[1].mechanism"),
        ("M003", "release.mechanisms[2].mechanism"),
    ]


def test_a_mapping_and_a_file_have_the_same_body(tmp_path: Path) -> None:
    parsed, loaded = parse_request(plain("r")), from_file(tmp_path, "r")
    assert parsed == loaded
    assert encode_canonical(parsed.body) == encode_canonical(loaded.body)


def test_only_recorded_shapes_have_a_value_check() -> None:
    with pytest.raises(InvariantBroken, match="ParseCounter describes no recorded value"):
        value_check(object.__new__(ParseCounter))
