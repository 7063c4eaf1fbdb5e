"""Nobody does what they may not: roles × endpoints, bad tokens, grants, two persons, browsers."""

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
    policy_in_force,
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
from dpolicy.service.http.endpoint import Endpoint
from dpolicy.service.http.middleware import COOKIE
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Source

GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.roles]
#: A person of each role.
PEOPLE = {role: person for person, role in ROLES.items()}


def asked(client: httpx.Client, endpoint: Endpoint) -> httpx.Response:
    """A request to an endpoint that could succeed, or fail for want of a thing, not of a role."""
    path = endpoint.path.replace("{release:path}", "nothing").replace("{proposal}", "1")
    return client.request(endpoint.method, path, json={} if endpoint.body else None)


@pytest.mark.parametrize("endpoint", GUARDED, ids=lambda endpoint: endpoint.name)
def test_each_role_reaches_its_endpoints_and_no_others(server: Server, endpoint: Endpoint) -> None:
    for role, person in PEOPLE.items():
        answer = asked(server.client(person), endpoint)
        refused = answer.status_code == 403
        assert refused == (role not in endpoint.roles), (role, answer.text)
        assert answer.status_code != 401 and answer.status_code < 500


@pytest.mark.parametrize("endpoint", GUARDED, ids=lambda endpoint: endpoint.name)
def test_nobody_is_nobody(server: Server, endpoint: Endpoint) -> None:
    for headers in (
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Basic {token('olga')}"},
        {"authorization": "Bearer"},
        {"cookie": f"{COOKIE}=nonsense"},
        {"x-forwarded-user": "olga"},
    ):
        answer = asked(server.client(headers=headers), endpoint)
        assert answer.status_code == 401, answer.text
        assert answer.json()["code"] == "unauthenticated"
        assert "www-authenticate" in answer.headers


def test_the_matrix_notices_an_endpoint_that_does_not_ask(tmp_path: Path) -> None:
    """The canary: in a server whose check is gone, the matrix must fail."""
    (tmp_path / "access.yaml").write_text(access())
    policy_in_force(str(tmp_path / "ledger.db"))
    broken = (
        "import dpolicy.service.app as app; app._demand = lambda *_: None; "
        "from dpolicy.cli.main import run; run()"
    )
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options, program=broken) as server:
        head = next(e for e in GUARDED if e.name == "head")
        with pytest.raises(AssertionError):
            test_each_role_reaches_its_endpoints_and_no_others(server, head)


# Signed tokens

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://login.example.org", "dpolicy"
#: An issuer that calls people by their names here, and one of whom nobody is known.
PLAIN, EMPTY = "https://plain.example.org", "https://empty.example.org"


def key_set() -> dict[str, Any]:
    """The public keys, as an issuer publishes them."""
    keys = []
    for name, key, kind in (("r1", RSA, "RS256"), ("e1", CURVE, "ES256")):
        algorithm = jwt.get_algorithm_by_name(kind)
        said = algorithm.to_jwk(key.public_key(), as_dict=True)
        keys.append({**said, "kid": name, "use": "sig"})
    return {"keys": keys}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "auth|olga", "exp": now + 300, "iat": now}
    return {key: value for key, value in {**said, **more}.items() if value is not None}


def signed(said: dict[str, Any], key: Any = RSA, kind: str = "RS256", number: str = "r1") -> str:
    return jwt.encode(said, key, algorithm=kind, headers={"kid": number})


def unsigned(said: dict[str, Any], kind: Any) -> str:
    parts = [{"alg": kind, "typ": "JWT", "kid": "r1"}, said]
    words = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts]
    return b".".join([*words, b""]).decode()


def public_text() -> bytes:
    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def with_public_key_as_secret() -> str:
    """What a server that believes the token's own `alg` would take for good."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "r1"}).encode())
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode())
    signing = head.rstrip(b"=") + b"." + body.rstrip(b"=")
    mac = hmac.new(public_text(), signing, hashlib.sha256).digest()
    return (signing + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that believes an issuer."""
    folder: Path = tmp_path_factory.mktemp("issuer")
    (folder / "keys.json").write_text(json.dumps(key_set()))
    subjects = {ISSUER: ", subjects: {'auth|olga': olga}", PLAIN: "", EMPTY: ", subjects: {}"}
    issuers = "issuers:\n" + "".join(
        f"  - {{issuer: '{issuer}', audience: {AUDIENCE}, keys: keys.json{more}}}\n"
        for issuer, more in subjects.items()
    )
    (folder / "access.yaml").write_text(access(issuers))
    policy_in_force(str(folder / "ledger.db"))
    with serving(str(folder / "ledger.db"), "--access", str(folder / "access.yaml")) as found:
        yield found


def who(server: Server, credential: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {credential}"}
    return httpx.get(f"{server.url}/v1/who", headers=headers)


def test_a_good_token_speaks_for_a_person(trusting: Server) -> None:
    for good in (
        signed(claims()),
        signed(claims(), CURVE, "ES256", "e1"),
        signed(claims(iss=PLAIN, sub="olga")),
        signed(claims(aud=["other", AUDIENCE])),
    ):
        answer = who(trusting, good)
        assert answer.status_code == 200 and answer.json()["name"] == "olga", answer.text


BAD: dict[str, Callable[[], str]] = {
    "expired": lambda: signed(claims(exp=int(time.time()) - 3600)),
    "without an end": lambda: signed(claims(exp=None)),
    "not yet good": lambda: signed(claims(nbf=int(time.time()) + 3600)),
    "for another audience": lambda: signed(claims(aud="payroll")),
    "for no audience": lambda: signed(claims(aud=None)),
    "of another issuer": lambda: signed(claims(iss="https://evil.example.org")),
    "of no issuer": lambda: signed(claims(iss=None)),
    "of nobody": lambda: signed(claims(sub="mallory")),
    "of a name beside the map of names": lambda: signed(claims(sub="olga")),
    "of a name where nobody is listed": lambda: signed(claims(iss=EMPTY, sub="olga")),
    "of a subject of another issuer": lambda: signed(claims(iss=PLAIN)),
    "without a subject": lambda: signed(claims(sub=None)),
    "signed by a stranger": lambda: signed(claims(), STRANGER),
    "signed by another key": lambda: signed(claims(), CURVE, "ES256", "r1"),
    "of an unknown key": lambda: signed(claims(), RSA, "RS256", "r2"),
    "with alg none": lambda: unsigned(claims(), "none"),
    "with alg None": lambda: unsigned(claims(), "None"),
    "without a signature": lambda: unsigned(claims(), "RS256"),
    "with the public key as a secret": with_public_key_as_secret,
    "tampered": lambda: signed(claims(sub="ana"))[:-8] + "AAAAAAAA",
    "no token": lambda: "a.b.c",
    "with a list for alg": lambda: unsigned(claims(), []),
    "with a map for alg": lambda: unsigned(claims(), {}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_token_speaks_for_nobody(trusting: Server, name: str) -> None:
    answer = who(trusting, BAD[name]())
    assert answer.status_code == 401, answer.text


@pytest.mark.parametrize("name", ["with the public key as a secret", "with alg none"])
def test_the_bad_tokens_would_be_taken_by_a_gullible_server(name: str) -> None:
    """The canary: without the list of algorithms these tokens say what their makers want."""
    bad = BAD[name]()
    if name == "with alg none":
        assert jwt.decode(bad, options={"verify_signature": False})["sub"] == "auth|olga"
        return
    head, _, mac = bad.rpartition(".")
    expected = hmac.new(public_text(), head.encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(mac + "=" * (-len(mac) % 4)) == expected
    assert "HS256" not in oidc.ALGORITHMS


class KeyServer:
    """An issuer that publishes its keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"keys": []}
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
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


def test_new_keys_are_fetched_and_unknown_ones_do_not_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(oidc, "monotonic", lambda: now)
    server = KeyServer()
    try:
        server.keys = {"keys": key_set()["keys"][:1]}
        keys = oidc.IssuerKeys(server.url, tmp_path)
        assert keys.find("r1").key_id == "r1" and server.asked == 1
        server.keys = key_set()
        for _ in range(20):
            with pytest.raises(RequestRefused):
                keys.find("e1")
        assert server.asked == 1
        now += oidc.RETRY + 1
        assert keys.find("e1").key_id == "e1" and server.asked == 2
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


def test_the_access_file_is_read_anew(tmp_path: Path) -> None:
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


class Writer:
    """Somebody who goes on writing a file while it is read."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = iter(texts)

    def read(self, path: Path) -> Source:
        source = read_source(path)
        if (text := next(self._texts, None)) is not None:
            path.write_text(text)
        return source


def test_an_access_file_is_not_read_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "access.yaml", access("restricted: {deployment: [black-box]}\n")
    path.write_text(access())
    monkeypatch.setattr(access_file, "read_source", Writer([whole]).read)
    assert load_access(path).restricted == {"deployment": frozenset({"black-box"})}


def test_an_access_file_that_never_rests_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(access())
    file = AccessFile(path)
    texts = [access("#" * n) for n in range(2, access_file.MAX_READ_ATTEMPTS + 2)]
    monkeypatch.setattr(access_file, "read_source", Writer(texts).read)
    path.write_text(access("#"))
    with pytest.raises(RequestRefused) as error:
        file()
    assert error.value.code == "access-unreadable"
    assert file().identify(token("ana"), datetime.now(UTC)).name == "ana"


def mistaken(person: str = "{}", **others: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in others.items())
    return f"access: 1\npeople: {{ana: {person}}}\n{more}"


def issued(keys: str, more: str = "") -> str:
    return mistaken(
        "{roles: [analyst]}", issuers=f"[{{issuer: a, audience: b, keys: {keys}{more}}}]"
    )


def test_a_server_with_a_broken_access_file_lives_and_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(access())
    policy_in_force(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db"), "--access", str(path)) as server:
        client = server.client("olga")
        assert client.get("/v1/who").status_code == 200
        path.write_text("access: 1\npeple: {}\n")
        shut = client.get("/v1/who")
        assert (shut.status_code, shut.json()["code"]) == (503, "access-unreadable")
        assert client.get("/health/live").status_code == 200
        path.write_text(access())
        assert client.get("/v1/who").status_code == 200


MISTAKES = {
    "access: 2\npeople: {}\n": "P007",
    "access: 1\n": "P008",
    mistaken("{}"): "P008",
    mistaken("{roles: [king]}"): "P012",
    mistaken("{roles: []}"): "P007",
    mistaken("{roles: [analyst], tokens: [{sha256: abc, expires: 2030-01-01}]}"): "P007",
    mistaken(f"{{roles: [analyst], tokens: [{{sha256: {'a' * 64}}}]}}"): "P008",
    mistaken("{roles: [analyst]}", approval="{wen: 'true'}"): "P006",
    issued("'http://example.org/k'"): "P012",
    issued("k.json", ", subjects: {x: y}"): "P012",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_the_access_file_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "access.yaml").write_text(text)
    with pytest.raises(PolicyRejected) as error:
        load_access(tmp_path / "access.yaml")
    assert MISTAKES[text] in str(error.value)


def test_a_token_of_two_people_is_a_mistake(tmp_path: Path) -> None:
    line = f"[{{sha256: {'a' * 64}, expires: 2030-01-01}}]"
    people = (
        f"{{ana: {{roles: [analyst], tokens: {line}}}, ben: {{roles: [analyst], tokens: {line}}}}}"
    )
    (tmp_path / "access.yaml").write_text(f"access: 1\npeople: {people}\n")
    with pytest.raises(PolicyRejected, match="twice"):
        load_access(tmp_path / "access.yaml")


# Grants and two persons


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which a label is restricted and some releases need a second person."""
    folder: Path = tmp_path_factory.mktemp("strict")
    approval = "approval: {when: 'labels.stage == \"tuning\"', void: false}\n"
    more = f"restricted: {{deployment: [black-box]}}\n{approval}"
    (folder / "access.yaml").write_text(access(more, grants="{deployment: [black-box]}"))
    policy_in_force(str(folder / "ledger.db"))
    with serving(str(folder / "ledger.db"), "--access", str(folder / "access.yaml")) as found:
        yield found


def test_a_restricted_label_needs_a_grant(strict: Server) -> None:
    ana, ben = strict.client("ana"), strict.client("ben")
    claims_it = release("boxed", labels={"deployment": "black-box"})
    refused = ana.post("/v1/releases", json=claims_it)
    assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
    assert ana.post("/v1/check", json=claims_it).status_code == 403
    assert ana.post("/v1/releases", json=release("plain")).status_code == 200
    assert ben.post("/v1/releases", json=claims_it).json()["decision"] == "allow"
    ana.post("/v1/releases", json={**release("held"), "mode": "reserve"})
    used = {"used": release("held", labels={"deployment": "black-box"})}
    assert ana.post("/v1/releases/held/commit", json=used).status_code == 403


def test_some_releases_wait_for_a_second_person(strict: Server) -> None:
    ana, pia, olga = (strict.client(name) for name in ("ana", "pia", "olga"))
    tuning = release("tuned", labels={"stage": "tuning"})
    assert ana.post("/v1/check", json=tuning).json()["needs-second-person"]
    first = ana.post("/v1/releases", json=tuning)
    assert first.status_code == 202
    number = first.json()["proposal"]
    assert ana.post("/v1/releases", json=tuning).json()["proposal"] == number
    other = release("tuned", "0.002", labels={"stage": "tuning"})
    assert ana.post("/v1/releases", json=other).json()["code"] == "id-taken"
    assert ana.get("/v1/releases/tuned").json()["status"] == "waiting"
    assert ana.post(f"/v1/proposals/{number}/approve", json={}).status_code == 403
    both = {"releases": [tuning], "strategy": "efficient"}
    assert olga.post("/v1/allocate", json=both).status_code == 403
    done = pia.post(f"/v1/proposals/{number}/approve", json={"because": "fine"}).json()
    assert done["decision"]["decision"] == "allow"
    again = ana.post("/v1/releases", json=tuning).json()
    assert again["replayed"] and again["sequence"] == done["sequence"]


def test_what_was_run_needs_the_second_person_too(strict: Server) -> None:
    ana, pia = strict.client("ana"), strict.client("pia")
    tuning = release("run-1", labels={"stage": "tuning"})
    ana.post("/v1/releases", json={**release("run-1"), "mode": "reserve"})
    alone = ana.post("/v1/releases/run-1/commit", json={"used": tuning})
    assert (alone.status_code, alone.json()["code"]) == (403, "forbidden")
    seen = release("run-2", "0.002", labels={"stage": "tuning"})
    number = ana.post("/v1/releases", json={**seen, "mode": "reserve"}).json()["proposal"]
    pia.post(f"/v1/proposals/{number}/approve", json={})
    less = release("run-2", "0.001", labels={"stage": "tuning"})
    assert ana.post("/v1/releases/run-2/commit", json={"used": less}).status_code == 200


def test_a_condition_that_cannot_be_read_holds(tmp_path: Path) -> None:
    more = "approval: {when: 'labels.colour == \"red\"'}\n"
    (tmp_path / "access.yaml").write_text(access(more))
    policy_in_force(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        assert server.client("ana").post("/v1/releases", json=release("any")).status_code == 202


def test_a_restricted_default_needs_a_grant(tmp_path: Path) -> None:
    """To leave a label out is to claim its default."""
    (tmp_path / "access.yaml").write_text(access("restricted: {deployment: [standard]}\n"))
    policy_in_force(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        refused = server.client("ana").post("/v1/releases", json=release("any"))
        assert refused.json()["code"] == "label-not-granted"


def test_a_rejected_release_stays_rejected(strict: Server) -> None:
    ana, pia = strict.client("ana"), strict.client("pia")
    tuning = {**release("unwanted", labels={"stage": "tuning"}), "mode": "reserve"}
    number = ana.post("/v1/releases", json=tuning).json()["proposal"]
    pia.post(f"/v1/proposals/{number}/reject", json={"because": "no"})
    assert ana.get("/v1/releases/unwanted").json()["status"] == "rejected"
    assert ana.post("/v1/releases", json=tuning).json()["code"] == "already-rejected"


def test_what_waits_for_a_second_person_is_not_imported(strict: Server) -> None:
    ana, pia, olga = (strict.client(name) for name in ("ana", "pia", "olga"))
    tuning = release("past", labels={"stage": "tuning"})
    number = ana.post("/v1/releases", json=tuning).json()["proposal"]
    past = {"releases": [{**tuning, "by": "ana"}], "because": "it was run"}
    alone = olga.post("/v1/releases:import", json=past)
    assert (alone.status_code, alone.json()["code"]) == (409, "waiting")
    pia.post(f"/v1/proposals/{number}/reject", json={})
    alone = olga.post("/v1/releases:import", json=past)
    assert (alone.status_code, alone.json()["code"]) == (409, "already-rejected")


def test_who_imports_claims_the_labels_too(strict: Server, tmp_path: Path) -> None:
    boxed = release("boxed-past", labels={"deployment": "black-box"})
    past = {"releases": [release("plain-past"), boxed], "because": "from the wiki"}
    olga = strict.client("olga")
    refused = olga.post("/v1/releases:import", json=past)
    assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
    assert olga.get("/v1/releases/plain-past").status_code == 404
    (tmp_path / "access.yaml").write_text(access("restricted: {deployment: [black-box]}\n"))
    options = ("--access", str(tmp_path / "access.yaml"))
    DecisionPoint(tmp_path / "ledger.db").close()  # without any policy yet
    with serving(str(tmp_path / "ledger.db"), *options) as empty:
        olga = empty.client("olga")
        refused = olga.post("/v1/releases:import", json=past)
        assert (refused.status_code, refused.json()["code"]) == (403, "label-not-granted")
        plain = {"releases": [release("plain-past")], "because": "from the wiki"}
        assert olga.post("/v1/releases:import", json=plain).status_code == 200


# Browsers, and a machine that serves only itself


def test_a_browser_logs_in_and_out(server: Server) -> None:
    browser = server.client()
    page = browser.get("/some/page", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/some/page")
    wrong = browser.post("/login", data={"token": "nonsense"})
    assert wrong.headers["location"].startswith("/login") and not browser.cookies
    done = browser.post("/login", data={"token": token("ana"), "next": "/some/page"})
    assert done.headers["location"] == "/some/page"
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert browser.get("/v1/who").json()["name"] == "ana"
    browser.post("/logout")
    assert browser.get("/v1/who").status_code == 401
    for elsewhere in ("//evil.example.org", "https://evil.example.org", "/\\evil"):
        sent = server.client().post("/login", data={"token": token("ana"), "next": elsewhere})
        assert sent.headers["location"] == "/"


def test_a_page_of_another_site_cannot_act(server: Server) -> None:
    browser = server.client(cookies={COOKIE: token("ana")})
    for headers in (
        {"origin": "https://evil.example.org"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = browser.post("/v1/releases", json=release("forged"), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "other-origin")
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert browser.post("/v1/check", json=release("own"), headers=own).status_code == 200


def test_without_an_access_file_only_this_machine_is_served(tmp_path: Path) -> None:
    policy_in_force(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db")) as local:
        client = local.client()
        assert client.get("/v1/who").json()["name"] == "local"
        named = {**release("cli", "0.01"), "by": "whoever"}
        assert client.post("/v1/releases", json=named).json()["decision"] == "allow"
        held = {**release("held"), "mode": "reserve"}
        client.post("/v1/releases", json=held)
        voided = client.post("/v1/releases/held/void", json={"because": "never started"})
        assert voided.json()["status"] == "voided"
        rebound = client.get("/v1/who", headers={"host": "evil.example.org"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "wrong-host")
        evil = {"origin": "http://evil.example.org"}
        assert client.post("/v1/check", json=release("x"), headers=evil).status_code == 403


def test_a_certificate_makes_it_tls(tmp_path: Path) -> None:
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
    policy_in_force(str(tmp_path / "ledger.db"))
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
    alone = ["serve", "--ledger", str(tmp_path / "ledger.db"), *options[:2]]
    assert exit_code(alone) == 64


def test_other_addresses_need_an_access_file(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        assert exit_code(["serve", "--ledger", ledger, "--host", host, "--port", "0"]) == 64


def test_the_table_asks_for_a_role_wherever_something_is_told() -> None:
    opened = {endpoint.path for endpoint in ENDPOINTS if not endpoint.roles}
    health = {"/health", "/health/live", "/health/ready"}
    assert opened == {*health, "/.well-known/authzen-configuration"}
