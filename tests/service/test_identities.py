"""E-mail addresses and subjects of identity providers are identities, from file to predicate."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.pdp.builders import HEAD, policy, pure
from tests.service.servers import activate_policy, serving

import dpolicy
from dpolicy.cli.main import exit_code
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.service.auth.access_file import load_access

IDENTITIES = [
    "ana",
    "web analytics",
    "ana@example.org",
    "ana+dp@mail.example.org",
    "o'hara@example.org",
    "auth0|5f7c8ec7c33c6c004bbafe82",
    "https://id.example.org/users/12",
    "system:serviceaccount:prod:etl",
    "AAAAAIkzqFVrSaSaFHy782bbtaQ=",
    "a" * 255,
]
INVALID: list[Any] = ["", " ana", "ana ", "ána@example.org", "a\nb", "<b>", 'a"b', "a" * 256, ["a"]]

BY_ANA = (
    "  - {name: hers, kind: custom, when: 'by == \"ana@example.org\"', unit: user,"
    " budget: {epsilon: 1, delta: 0}}\n"
    "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 9, delta: 0}}\n"
)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_an_identity_is_recorded_as_it_is(identity: str) -> None:
    store = MemoryStore()
    point = DecisionPoint(store)
    point.apply(policy(BY_ANA), by=identity)
    assert point.submit({**pure("r", "0.5"), "by": identity})
    entry, event = DecisionPoint(store).find_release("r")
    assert identity in str(event) and entry is not None
    assert audit_ledger(store).findings == ()


@pytest.mark.parametrize("identity", INVALID, ids=repr)
def test_another_text_is_no_identity(identity: Any) -> None:
    with pytest.raises(dpolicy.ReleaseRejected, match=r"P0(11|07)"):
        release_from_plain({**pure("r", "0.5"), "by": identity})


def test_an_address_is_no_name_of_an_attribute_or_a_release() -> None:
    with pytest.raises(dpolicy.ReleaseRejected, match="P011"):
        release_from_plain(pure("r@example.org", "0.5"))
    with pytest.raises(dpolicy.PolicyRejected, match="P011"):
        policy(head=HEAD.replace("zip:", "zip@example.org:"))


def test_a_predicate_compares_an_address() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(BY_ANA))
    hers = point.check({**pure("a", "2"), "by": "ana@example.org"})
    assert hers.exceeded_rules == ("hers",)
    assert point.check({**pure("b", "2"), "by": "ben@example.org"})


def test_an_address_works_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, file = tmp_path / "ledger.db", tmp_path / "release.yaml"
    activate_policy(str(ledger))
    file.write_text(
        "release: r\nby: ana@example.org\nmechanisms: [{mechanism: {kind: declared, epsilon: 1}}]\n"
    )
    options = ["--ledger", str(ledger), "--by", "ana@example.org"]
    assert exit_code(["submit", str(file), *options]) == 0, capsys.readouterr().err
    assert exit_code(["log", "--ledger", str(ledger)]) == 0
    assert "ana@example.org" in capsys.readouterr().out


def test_an_address_is_a_principal_of_the_service(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    token = f"{{sha256: {digest}, expires: 2099-01-01}}"
    people = f"  ana@example.org: {{roles: [analyst], tokens: [{token}]}}\n"
    (tmp_path / "access.yaml").write_text(f"access: 1\npeople:\n{people}")
    ledger = str(tmp_path / "ledger.db")
    activate_policy(ledger)
    with (
        serving(ledger, "--access", str(tmp_path / "access.yaml")) as server,
        dpolicy.Client(server.url, "secret") as client,
    ):
        assert client.whoami()["name"] == "ana@example.org"
        assert client.submit(pure("r", "0.5"))
        assert client.release("r")["by"] == "ana@example.org"
        assert not client.submit({**pure("s", "5"), "by": "ana@example.org"})
        with pytest.raises(dpolicy.MalformedRelease, match="P006"):
            client.submit({**pure("t", "0.5"), "utillity": 1})


def test_a_subject_of_an_issuer_is_mapped_to_an_address(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(
        "access: 1\n"
        "people:\n"
        "  ana@example.org: {roles: [analyst]}\n"
        "  auth0|5f7c8ec7: {roles: [officer]}\n"
        "issuers:\n"
        "  - issuer: https://login.example.org\n"
        "    audience: dpolicy\n"
        "    keys: keys.json\n"
        '    subjects: {"auth0|77": ana@example.org}\n'
    )
    rules = load_access(file)
    assert set(rules.people) == {"ana@example.org", "auth0|5f7c8ec7"}
    assert rules.issuers[0].subjects == {"auth0|77": "ana@example.org"}
    file.write_text("access: 1\npeople:\n  <b>: {roles: [analyst]}\n")
    with pytest.raises(dpolicy.PolicyRejected, match="P011: `<b>` is not a valid identity"):
        load_access(file)
