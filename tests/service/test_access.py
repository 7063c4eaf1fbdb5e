"""Access control: roles of each endpoint, invalid tokens, grants, approvals, browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from tests.service.servers import (
    ROLES,
    Server,
    access,
    activate_policy,
    release,
    serving,
    token,
)

from dpolicy.cli.main import exit_code
from dpolicy.errors import PolicyRejected, RequestRefused
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.auth import access_file, oidc
from dpolicy.service.auth.access_file import AccessFile, load_access
from dpolicy.service.http.admission import COOKIE
from dpolicy.service.http.endpoint import Endpoint
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source

PROTECTED = [endpoint for endpoint in ENDPOINTS if endpoint.roles]
#: Role → a person with this role.
PEOPLE = {role: person for person, role in ROLES.items()}


def send_request(client: httpx.Client, endpoint: Endpoint) -> httpx.Response:
    """Send a request that a caller with a permitted role gets past the check of roles."""
    path = endpoint.path.replace("{release:path}", "nothing").replace("{proposal}", "1")
    return client.request(endpoint.method, path, json={} if endpoint.body else None)


@pytest.mark.parametrize("endpoint", PROTECTED, ids=lambda endpoint: endpoint.name)
def test_each_role_reaches_its_endpoints_and_no_others(server: Server, endpoint: Endpoint) -> None:
    for role, person in PEOPLE.items():
        response = send_request(server.client(person), endpoint)
        refused = response.status_code == 403
        assert refused == (role not in endpoint.roles), (role, response.text)
        assert response.status_code != 401 and response.status_code < 500


@pytest.mark.parametrize("endpoint", PROTECTED, ids=lambda endpoint: endpoint.name)
def test_a_request_without_valid_credentials_is_refused(server: Server, endpoint: Endpoint) -> None:
    for headers in (
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Basic {token('olga')}"},
        {"authorization": "Bearer"},
        {"cookie": f"{COOKIE}=nonsense"},
        {"x-forwarded-user": "olga"},
    ):
        response = send_request(server.client(headers=headers), endpoint)
        assert response.status_code == 401, response.text
        assert response.json()["code"] == "unauthenticated"
        assert "www-authenticate" in response.headers


def test_the_role_test_detects_a_server_without_role_checks(tmp_path: Path) -> None:
    """Canary: the test of roles fails for a server that does not check them."""
    (tmp_path / "access.yaml").write_text(access())
    activate_policy(str(tmp_path / "ledger.db"))
    broken = (
        "import dpolicy.service.app as app; app.ensure_role = lambda *_: None; "
        "from dpolicy.cli.main import run; run()"
    )
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options, program=broken) as server:
        head = next(e for e in PROTECTED if e.name == "head")
        with pytest.raises(AssertionError):
            test_each_role_reaches_its_endpoints_and_no_others(server, head)


# Signed tokens

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://login.example.org", "dpolicy"
#: An issuer whose subjects are the names of people, and one with an empty map of subjects.
PLAIN, EMPTY = "https://plain.example.org", "https://empty.example.org"


def key_set() -> dict[str, Any]:
    """Return the public keys of the issuer as a JWKS."""
    keys = []
    for name, key, kind in (("r1", RSA, "RS256"), ("e1", CURVE, "ES256")):
        algorithm = jwt.get_algorithm_by_name(kind)
        fields = algorithm.to_jwk(key.public_key(), as_dict=True)
        keys.append({**fields, "kid": name, "use": "sig"})
    return {"keys": keys}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    default = {"iss": ISSUER, "aud": AUDIENCE, "sub": "auth|olga", "exp": now + 300, "iat": now}
    return {key: value for key, value in {**default, **more}.items() if value is not None}


def sign(payload: dict[str, Any], key: Any = RSA, kind: str = "RS256", key_id: str = "r1") -> str:
    return jwt.encode(payload, key, algorithm=kind, headers={"kid": key_id})


def without_signature(payload: dict[str, Any], kind: Any) -> str:
    parts = [{"alg": kind, "typ": "JWT", "kid": "r1"}, payload]
    encoded = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts]
    return b".".join([*encoded, b""]).decode()


def public_key_pem() -> bytes:
    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def with_public_key_as_secret() -> str:
    """Return a token that a server accepts if it trusts the `alg` of the token."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "r1"}).encode())
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode())
    signing = head.rstrip(b"=") + b"." + body.rstrip(b"=")
    mac = hmac.new(public_key_pem(), signing, hashlib.sha256).digest()
    return (signing + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.fixture(scope="module")
def server_with_issuers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts the tokens of three issuers."""
    folder: Path = tmp_path_factory.mktemp("issuer")
    (folder / "keys.json").write_text(json.dumps(key_set()))
    subjects = {ISSUER: ", subjects: {'auth|olga': olga}", PLAIN: "", EMPTY: ", subjects: {}"}
    issuers = "issuers:\n" + "".join(
        f"  - {{issuer: '{issuer}', audience: {AUDIENCE}, keys: keys.json{more}}}\n"
        for issuer, more in subjects.items()
    )
    (folder / "access.yaml").write_text(access(issuers))
    activate_policy(str(folder / "ledger.db"))
    with serving(
        str(folder / "ledger.db"), "--access", str(folder / "access.yaml")
    ) as running_server:
        yield running_server


def request_whoami(server: Server, credential: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {credential}"}
    return httpx.get(f"{server.url}/v1/who", headers=headers)


def test_a_valid_token_identifies_a_person(server_with_issuers: Server) -> None:
    for valid in (
        sign(claims()),
        sign(claims(), CURVE, "ES256", "e1"),
        sign(claims(iss=PLAIN, sub="olga")),
        sign(claims(aud=["other", AUDIENCE])),
    ):
        response = request_whoami(server_with_issuers, valid)
        assert response.status_code == 200 and response.json()["name"] == "olga", response.text


INVALID_TOKENS: dict[str, Callable[[], str]] = {
    "expired": lambda: sign(claims(exp=int(time.time()) - 3600)),
    "without an expiry time": lambda: sign(claims(exp=None)),
    "not yet valid": lambda: sign(claims(nbf=int(time.time()) + 3600)),
    "for another audience": lambda: sign(claims(aud="payroll")),
    "for no audience": lambda: sign(claims(aud=None)),
    "of another issuer": lambda: sign(claims(iss="https://evil.example.org")),
    "of no issuer": lambda: sign(claims(iss=None)),
    "of an unknown person": lambda: sign(claims(sub="mallory")),
    "of a name that is not in the map of subjects": lambda: sign(claims(sub="olga")),
    "of a name with an empty map of subjects": lambda: sign(claims(iss=EMPTY, sub="olga")),
    "of a subject of another issuer": lambda: sign(claims(iss=PLAIN)),
    "without a subject": lambda: sign(claims(sub=None)),
    "signed by a stranger": lambda: sign(claims(), STRANGER),
    "signed by another key": lambda: sign(claims(), CURVE, "ES256", "r1"),
    "of an unknown key": lambda: sign(claims(), RSA, "RS256", "r2"),
    "with alg none": lambda: without_signature(claims(), "none"),
    "with alg None": lambda: without_signature(claims(), "None"),
    "without a signature": lambda: without_signature(claims(), "RS256"),
    "with the public key as a secret": with_public_key_as_secret,
    "tampered": lambda: sign(claims(sub="ana"))[:-8] + "AAAAAAAA",
    "not a token": lambda: "a.b.c",
    "with a list for alg": lambda: without_signature(claims(), []),
    "with a map for alg": lambda: without_signature(claims(), {}),
}


@pytest.mark.parametrize("name", INVALID_TOKENS)
def test_an_invalid_token_is_refused(server_with_issuers: Server, name: str) -> None:
    response = request_whoami(server_with_issuers, INVALID_TOKENS[name]())
    assert response.status_code == 401, response.text


@pytest.mark.parametrize("name", ["with the public key as a secret", "with alg none"])
def test_a_server_without_a_list_of_algorithms_accepts_the_invalid_tokens(name: str) -> None:
    """Canary: only the list of accepted algorithms makes these tokens invalid."""
    invalid = INVALID_TOKENS[name]()
    if name == "with alg none":
        assert jwt.decode(invalid, options={"verify_signature": False})["sub"] == "auth|olga"
        return
    head, _, mac = invalid.rpartition(".")
    expected = hmac.new(public_key_pem(), head.encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(mac + "=" * (-len(mac) % 4)) == expected
    assert "HS256" not in oidc.ALGORITHMS


class KeyServer:
    """HTTP server of an issuer that publishes keys and counts the requests."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"keys": []}
        self.request_count = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.request_count += 1
                data = json.dumps(outer.keys).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_new_keys_are_fetched_and_unknown_key_ids_do_not_cause_many_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(oidc, "monotonic", lambda: now)
    server = KeyServer()
    try:
        server.keys = {"keys": key_set()["keys"][:1]}
        keys = oidc.IssuerKeys(server.url, tmp_path)
        assert keys.find("r1").key_id == "r1" and server.request_count == 1
        server.keys = key_set()
        for _ in range(20):
            with pytest.raises(RequestRefused):
                keys.find("e1")
        assert server.request_count == 1
        now += oidc.RETRY + 1
        assert keys.find("e1").key_id == "e1" and server.request_count == 2
        server.keys = {"keys": []}
        now += oidc.FRESH + 1
        with pytest.raises(RequestRefused):
            keys.find("r1")  # a key that was withdrawn
    finally:
        server.close()
    now += oidc.FRESH + 1
    with pytest.raises(RequestRefused) as error:
        keys.find("r1")
    assert error.value.code == "access-unreadable"


# The access file


def test_the_access_file_is_reloaded(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(access())
    file = AccessFile(path)
    now = datetime.now(UTC)
    assert file().identify(token("ana"), now).name == "ana"
    path.write_text(access().replace("  ana:", "  anna:"))
    assert file().identify(token("ana"), now).name == "anna"
    path.write_text(access() + "nonsense: 1\n")
    with pytest.raises(RequestRefused) as error:
        file()
    assert error.value.code == "access-unreadable"
    path.unlink()
    with pytest.raises(RequestRefused):
        file()
    path.write_text(access(expires="2020-01-01"))
    with pytest.raises(RequestRefused) as error:
        file().identify(token("ana"), now)
    assert error.value.code == "unauthenticated"


class ChangingFile:
    """Reader of a file that is rewritten during each read."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = iter(texts)

    def read(self, path: Path) -> Source:
        source = read_source(path)
        if (text := next(self._texts, None)) is not None:
            path.write_text(text)
        return source


def test_an_access_file_that_changes_during_a_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, complete = tmp_path / "access.yaml", access("restricted: {deployment: [black-box]}\n")
    path.write_text(access())
    monkeypatch.setattr(access_file, "read_source", ChangingFile([complete]).read)
    assert load_access(path).restricted == {"deployment": frozenset({"black-box"})}


def test_an_access_file_that_changes_during_every_read_admits_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(access())
    file = AccessFile(path)
    texts = [access("#" * n) for n in range(2, access_file.MAX_READ_ATTEMPTS + 2)]
    monkeypatch.setattr(access_file, "read_source", ChangingFile(texts).read)
    path.write_text(access("#"))
    with pytest.raises(RequestRefused) as error:
        file()
    assert error.value.code == "access-unreadable"
    assert file().identify(token("ana"), datetime.now(UTC)).name == "ana"


def access_text(person: str = "{}", **sections: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in sections.items())
    return f"access: 1\npeople: {{ana: {person}}}\n{more}"


def issuer_text(keys: str, more: str = "") -> str:
    return access_text(
        "{roles: [analyst]}", issuers=f"[{{issuer: a, audience: b, keys: {keys}{more}}}]"
    )


def test_a_server_with_an_invalid_access_file_runs_and_admits_no_one(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(access())
    activate_policy(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db"), "--access", str(path)) as server:
        client = server.client("olga")
        assert client.get("/v1/who").status_code == 200
        path.write_text("access: 1\npeple: {}\n")
        refused = client.get("/v1/who")
        assert (refused.status_code, refused.json()["code"]) == (503, "access-unreadable")
        assert client.get("/health/live").status_code == 200
        path.write_text(access())
        assert client.get("/v1/who").status_code == 200


INVALID_FILES = {
    "access: 2\npeople: {}\n": "P007",
    "access: 1\n": "P008",
    access_text("{}"): "P008",
    access_text("{roles: [king]}"): "P012",
    access_text("{roles: []}"): "P007",
    access_text("{roles: [analyst], tokens: [{sha256: abc, expires: 2030-01-01}]}"): "P007",
    access_text(f"{{roles: [analyst], tokens: [{{sha256: {'a' * 64}}}]}}"): "P008",
    access_text("{roles: [analyst]}", approval="{wen: 'true'}"): "P006",
    issuer_text("'http://example.org/k'"): "P012",
    issuer_text("k.json", ", subjects: {x: y}"): "P012",
}


@pytest.mark.parametrize("text", INVALID_FILES)
def test_an_error_in_the_access_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "access.yaml").write_text(text)
    with pytest.raises(PolicyRejected) as error:
        load_access(tmp_path / "access.yaml")
    assert INVALID_FILES[text] in str(error.value)


def test_a_token_of_two_people_is_an_error(tmp_path: Path) -> None:
    line = f"[{{sha256: {'a' * 64}, expires: 2030-01-01}}]"
    people = (
        f"{{ana: {{roles: [analyst], tokens: {line}}}, ben: {{roles: [analyst], tokens: {line}}}}}"
    )
    (tmp_path / "access.yaml").write_text(f"access: 1\npeople: {people}\n")
    with pytest.raises(PolicyRejected, match="twice"):
        load_access(tmp_path / "access.yaml")


# Grants and approvals


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which a label is restricted and releases with `stage: tuning` need approval."""
    folder: Path = tmp_path_factory.mktemp("strict")
    approval = "approval: {when: 'labels.stage == \"tuning\"', void: false}\n"
    more = f"restricted: {{deployment: [black-box]}}\n{approval}"
    (folder / "access.yaml").write_text(access(more, grants="{deployment: [black-box]}"))
    activate_policy(str(folder / "ledger.db"))
    with serving(
        str(folder / "ledger.db"), "--access", str(folder / "access.yaml")
    ) as running_server:
        yield running_server


def test_a_restricted_label_needs_a_grant(strict: Server) -> None:
    ana, ben = strict.client("ana"), strict.client("ben")
    restricted = release("boxed", labels={"deployment": "black-box"})
    refused = ana.post("/v1/releases", json=restricted)
    assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
    assert ana.post("/v1/check", json=restricted).status_code == 403
    assert ana.post("/v1/releases", json=release("plain")).status_code == 200
    assert ben.post("/v1/releases", json=restricted).json()["decision"] == "allow"
    ana.post("/v1/releases", json={**release("held"), "mode": "reserve"})
    used = {"used": release("held", labels={"deployment": "black-box"})}
    assert ana.post("/v1/releases/held/commit", json=used).status_code == 403


def test_a_release_that_matches_the_condition_needs_approval(strict: Server) -> None:
    ana, pia, olga = (strict.client(name) for name in ("ana", "pia", "olga"))
    tuning = release("tuned", labels={"stage": "tuning"})
    assert ana.post("/v1/check", json=tuning).json()["needs-second-person"]
    first = ana.post("/v1/releases", json=tuning)
    assert first.status_code == 202
    number = first.json()["proposal"]
    assert ana.post("/v1/releases", json=tuning).json()["proposal"] == number
    changed = release("tuned", "0.002", labels={"stage": "tuning"})
    assert ana.post("/v1/releases", json=changed).json()["code"] == "id-taken"
    assert ana.get("/v1/releases/tuned").json()["status"] == "pending"
    assert ana.post(f"/v1/proposals/{number}/approve", json={}).status_code == 403
    round_body = {"releases": [tuning], "strategy": "efficient"}
    assert olga.post("/v1/allocate", json=round_body).status_code == 403
    answer = pia.post(f"/v1/proposals/{number}/approve", json={"because": "fine"}).json()
    assert answer["decision"]["decision"] == "allow"
    replay = ana.post("/v1/releases", json=tuning).json()
    assert replay["replayed"] and replay["sequence"] == answer["sequence"]


def test_a_used_release_that_matches_the_condition_needs_an_approved_reservation(
    strict: Server,
) -> None:
    ana, pia = strict.client("ana"), strict.client("pia")
    tuning = release("run-1", labels={"stage": "tuning"})
    ana.post("/v1/releases", json={**release("run-1"), "mode": "reserve"})
    refused = ana.post("/v1/releases/run-1/commit", json={"used": tuning})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    approved = release("run-2", "0.002", labels={"stage": "tuning"})
    number = ana.post("/v1/releases", json={**approved, "mode": "reserve"}).json()["proposal"]
    pia.post(f"/v1/proposals/{number}/approve", json={})
    smaller = release("run-2", "0.001", labels={"stage": "tuning"})
    assert ana.post("/v1/releases/run-2/commit", json={"used": smaller}).status_code == 200


def test_a_condition_that_the_policy_cannot_resolve_counts_as_true(tmp_path: Path) -> None:
    more = "approval: {when: 'labels.colour == \"red\"'}\n"
    (tmp_path / "access.yaml").write_text(access(more))
    activate_policy(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        assert server.client("ana").post("/v1/releases", json=release("any")).status_code == 202


def test_a_restricted_default_needs_a_grant(tmp_path: Path) -> None:
    """A release without the label has its default value."""
    (tmp_path / "access.yaml").write_text(access("restricted: {deployment: [standard]}\n"))
    activate_policy(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        refused = server.client("ana").post("/v1/releases", json=release("any"))
        assert refused.json()["code"] == "label-not-granted"


def test_a_rejected_release_stays_rejected(strict: Server) -> None:
    ana, pia = strict.client("ana"), strict.client("pia")
    tuning = {**release("rejected", labels={"stage": "tuning"}), "mode": "reserve"}
    number = ana.post("/v1/releases", json=tuning).json()["proposal"]
    pia.post(f"/v1/proposals/{number}/reject", json={"because": "no"})
    assert ana.get("/v1/releases/rejected").json()["status"] == "rejected"
    assert ana.post("/v1/releases", json=tuning).json()["code"] == "already-rejected"


def test_a_release_with_an_open_or_rejected_proposal_is_not_imported(strict: Server) -> None:
    ana, pia, olga = (strict.client(name) for name in ("ana", "pia", "olga"))
    tuning = release("past", labels={"stage": "tuning"})
    number = ana.post("/v1/releases", json=tuning).json()["proposal"]
    past = {"releases": [{**tuning, "by": "ana"}], "because": "it was run"}
    refused = olga.post("/v1/releases:import", json=past)
    assert (refused.status_code, refused.json()["code"]) == (409, "pending")
    pia.post(f"/v1/proposals/{number}/reject", json={})
    refused = olga.post("/v1/releases:import", json=past)
    assert (refused.status_code, refused.json()["code"]) == (409, "already-rejected")


def test_an_officer_needs_grants_for_the_labels_of_imported_releases(
    strict: Server, tmp_path: Path
) -> None:
    boxed = release("boxed-past", labels={"deployment": "black-box"})
    past = {"releases": [release("plain-past"), boxed], "because": "from the wiki"}
    olga = strict.client("olga")
    refused = olga.post("/v1/releases:import", json=past)
    assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
    assert olga.get("/v1/releases/plain-past").status_code == 404
    (tmp_path / "access.yaml").write_text(access("restricted: {deployment: [black-box]}\n"))
    options = ("--access", str(tmp_path / "access.yaml"))
    DecisionPoint(tmp_path / "ledger.db").close()  # a ledger without a policy
    with serving(str(tmp_path / "ledger.db"), *options) as empty:
        olga = empty.client("olga")
        refused = olga.post("/v1/releases:import", json=past)
        assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
        plain = {"releases": [release("plain-past")], "because": "from the wiki"}
        assert olga.post("/v1/releases:import", json=plain).status_code == 200


# Browsers, and servers without an access file


def test_a_browser_logs_in_and_out(server: Server) -> None:
    browser = server.client()
    page = browser.get("/some/page", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/some/page")
    failed = browser.post("/login", data={"token": "nonsense"})
    assert failed.headers["location"].startswith("/login") and not browser.cookies
    login = browser.post("/login", data={"token": token("ana"), "next": "/some/page"})
    assert login.headers["location"] == "/some/page"
    cookie = login.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert browser.get("/v1/who").json()["name"] == "ana"
    browser.post("/logout")
    assert browser.get("/v1/who").status_code == 401
    for target in ("//evil.example.org", "https://evil.example.org", "/\\evil"):
        sent = server.client().post("/login", data={"token": token("ana"), "next": target})
        assert sent.headers["location"] == "/"


def test_a_request_from_a_page_of_another_site_is_refused(server: Server) -> None:
    browser = server.client(cookies={COOKIE: token("ana")})
    for headers in (
        {"origin": "https://evil.example.org"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        response = browser.post("/v1/releases", json=release("forged"), headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "other-origin")
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert browser.post("/v1/check", json=release("own"), headers=own).status_code == 200


def test_without_an_access_file_only_local_callers_are_served(tmp_path: Path) -> None:
    activate_policy(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db")) as local:
        client = local.client()
        assert client.get("/v1/who").json()["name"] == "local"
        named = {**release("cli", "0.01"), "by": "another"}
        assert client.post("/v1/releases", json=named).json()["decision"] == "allow"
        held = {**release("held"), "mode": "reserve"}
        client.post("/v1/releases", json=held)
        voided = client.post("/v1/releases/held/void", json={"because": "never started"})
        assert voided.json()["status"] == "voided"
        rebound = client.get("/v1/who", headers={"host": "evil.example.org"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "wrong-host")
        other_site = {"origin": "http://evil.example.org"}
        assert client.post("/v1/check", json=release("x"), headers=other_site).status_code == 403


def test_a_server_with_a_certificate_uses_tls(tmp_path: Path) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, here = datetime.now(UTC), x509.IPAddress(ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, CURVE.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(CURVE, hashes.SHA256())
    )
    secret = CURVE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(secret)
    (tmp_path / "certificate.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    activate_policy(str(tmp_path / "ledger.db"))
    options = (
        "--certificate",
        str(tmp_path / "certificate.pem"),
        "--key",
        str(tmp_path / "key.pem"),
    )
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
        assert httpx.get(f"{server.url}/health/live", verify=trusted).status_code == 200
    without_key = ["serve", "--ledger", str(tmp_path / "ledger.db"), *options[:2]]
    assert exit_code(without_key) == 64


def test_other_hosts_need_an_access_file(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        assert exit_code(["serve", "--ledger", ledger, "--host", host, "--port", "0"]) == 64


def test_only_health_and_configuration_need_no_role() -> None:
    public = {endpoint.path for endpoint in ENDPOINTS if not endpoint.roles}
    health = {"/health", "/health/live", "/health/ready"}
    assert public == {*health, "/.well-known/authzen-configuration"}
