"""The quick reader returns the release of the strict reader, or None."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.releases.release_bodies import OtherText, releases, wrong_releases

from dpolicy.errors import MalformedRelease, PolicyRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.releases.python import quick_reader
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.python.quick_reader import (
    decode_json,
    read_decoded_body,
    read_json,
    read_plain,
)
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import (
    load_release,
    parse_plain_strictly,
    release_from_node,
    release_from_plain,
)
from dpolicy.text import yaml_reader
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source

ROOT = Path(__file__).parents[2]


def strict_plain(body: Mapping[str, Any]) -> Release | None:
    """Return the release of the strict reader, or None if it refuses the body."""
    try:
        return parse_plain_strictly(body)
    except MalformedRelease:
        return None


def strict_json(data: bytes) -> Release | None:
    """Return the release of JSON by nodes and shapes, or None if it has errors."""
    diagnostics = DiagnosticCollector()
    try:
        node = yaml_reader.read_json(Source("body", data.decode("utf-8")), diagnostics.report)
        release = None if node is None else release_from_node(node, diagnostics.report)
    except (UnicodeDecodeError, PolicyRejected):
        return None
    return None if diagnostics.errors else release


def parts(release: Release | None) -> Any:
    """Return everything in a release, with types and the order of keys."""
    if release is None:
        return None
    assert release.is_parsed
    mechanisms = [
        [(f.name, getattr(mechanism, f.name)) for f in fields(mechanism)]
        for mechanism in release.mechanisms
    ]
    plain = (release.id, release.by, release.utility, mechanisms, release.body)
    return release, repr(plain), encode_canonical(release.body)


def check_plain(body: Any) -> Release | None:
    """Compare both readers of a mapping; return the release of the quick reader."""
    quick = read_plain(body)
    assert quick is None or parts(quick) == parts(strict_plain(body))
    return quick


def check_json(data: bytes) -> Release | None:
    """Compare both readers of JSON; return the release of the quick reader."""
    quick = read_json(data)
    assert quick is None or parts(quick) == parts(strict_json(data))
    return quick


@given(releases())
def test_a_well_formed_mapping_takes_the_quick_way(body: dict[str, Any]) -> None:
    strict = strict_plain(body)
    quick = check_plain(body)
    assert (quick is None) == (strict is None)


@given(releases())
def test_well_formed_json_takes_the_quick_way(body: dict[str, Any]) -> None:
    strict = strict_plain(body)
    text = encode_canonical(to_plain_body(body))
    quick = check_json(text)
    assert (quick is None) == (strict is None)
    assert quick == strict
    spaced = json.dumps(json.loads(text, parse_float=Fraction), indent=1, default=float)
    check_json(spaced.encode("utf-8"))


@settings(max_examples=400)
@given(wrong_releases())
def test_a_changed_mapping_is_refused_or_read_as_strictly(body: dict[str, Any]) -> None:
    check_plain(body)


#: Fragments that a broken JSON text has in place of others.
FRAGMENTS = st.sampled_from(
    [
        *('"release":"a",', '"kind":"laplace",', "NaN", "Infinity", "-Infinity", "-0", "0.10"),
        *("1E2", "1e400", "1e-401", "1e99999", "01", "+1", ".5", "1.", "0x1", "9" * 61),
        *("1" + "0" * 60, "1e0005", "1e00005", "0." + "1" * 58, "0." + "1" * 59),
        *('"\\ud800"', '"\\u0061"', '"\\/"', "null", "true", "\ufeff", "\x00"),
        *("{", "}", "[", "]", ",", " ", "[" * 2000, '{"a":' * 40),
    ]
)


@settings(max_examples=400)
@given(releases(), FRAGMENTS, st.integers(0, 10**6), st.integers(0, 6))
def test_changed_json_is_refused_or_read_as_strictly(
    body: dict[str, Any], fragment: str, place: int, length: int
) -> None:
    plain = to_plain_body(body)
    text = encode_canonical(plain).decode("utf-8")
    start = place % len(text)
    check_json((text[:start] + fragment + text[start + length :]).encode("utf-8"))
    numbers = [n for n, character in enumerate(text) if character in "0123456789"]
    if numbers:
        start = numbers[place % len(numbers)]
        check_json((text[:start] + fragment + text[start + 1 :]).encode("utf-8"))
    maps = [n for n, character in enumerate(text) if character == "{"]
    start = maps[place % len(maps)] + 1
    check_json((text[:start] + fragment + text[start:]).encode("utf-8"))


def body_with(**parameters: Any) -> dict[str, Any]:
    noise = {"kind": "gaussian", "sigma": 2, **parameters}
    return {"release": "r", "mechanisms": [{"mechanism": noise}]}


#: Bodies on which a careless reader differs from the strict one.
PLAIN_CASES: dict[str, Any] = {
    "binary float": body_with(sigma=0.1),
    "truth value as number": body_with(count=True),
    "text as number": body_with(sigma="2"),
    "other text as key": {OtherText("release"): "r", "mechanisms": body_with()["mechanisms"]},
    "unknown key": {**body_with(), "mode": "commit"},
    "final newline": {**body_with(), "release": "r\n"},
    "too many digits": body_with(sigma=Fraction(10**70 + 1, 10**70)),
    "no finite decimal": body_with(sigma=Fraction(1, 3)),
    "unsorted attributes": {
        "release": "r",
        "mechanisms": [{**body_with()["mechanisms"][0], "attributes": ["b", "a", "b"]}],
    },
    "order of labels": {
        "release": "r",
        "mechanisms": [{**body_with()["mechanisms"][0], "labels": {"b": "x", "a": "y"}}],
    },
    "left out value": {**body_with(), "by": None},
}
JSON_CASES: dict[str, bytes] = {
    "duplicate key": b'{"release":"r","release":"s","mechanisms":[{"mechanism":{"kind":"gaussian",'
    b'"sigma":2}}]}',
    "duplicate parameter": b'{"release":"r","mechanisms":[{"mechanism":{"kind":"gaussian",'
    b'"sigma":2,"sigma":200}}]}',
    "decimal": b'{"release":"r","mechanisms":[{"mechanism":{"kind":"gaussian","sigma":0.1}}]}',
    "large exponent": b'{"release":"r","mechanisms":[{"mechanism":{"kind":"declared","epsilon":1,'
    b'"delta":1e-401}}]}',
    "many digits": b'{"release":"r","mechanisms":[{"mechanism":{"kind":"gaussian","sigma":1.'
    + b"1" * 60
    + b"}}]}",
    "many zeros": b'{"release":"r","mechanisms":[{"mechanism":{"kind":"gaussian","sigma":1.'
    + b"0" * 60
    + b"}}]}",
    "order of labels": b'{"release":"r","mechanisms":[{"labels":{"b":"x","a":"y"},"mechanism":'
    b'{"sigma":2,"kind":"gaussian"}}]}',
}


@pytest.mark.parametrize("body", PLAIN_CASES.values(), ids=PLAIN_CASES)
def test_edge_cases_of_mappings(body: Any) -> None:
    check_plain(body)
    assert (strict_plain(body) is None) <= (read_plain(body) is None)


@pytest.mark.parametrize("data", JSON_CASES.values(), ids=JSON_CASES)
def test_edge_cases_of_json(data: bytes) -> None:
    check_json(data)


def _accept_keys(fields: Any, keys: frozenset[str]) -> None:
    """Accept unknown keys."""


#: Broken readers: the function that is replaced, and its careless version.
BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "floats are binary": ("_number", Fraction),
    "truth values are numbers": ("_number", lambda value: Fraction(str(value * 1))),
    "fractions are not checked": (
        "_number",
        lambda value: value if isinstance(value, Fraction) else Fraction(str(value)),
    ),
    "unknown keys are accepted": ("_check_keys", _accept_keys),
    "names may end in a newline": ("_name", lambda value: value),
    "names are not sorted": ("_names", list),
    "keys are not sorted": ("_entries", lambda values, _: list(values.items())),
    "keys of JSON are sorted": ("_entries", lambda values, _: sorted(values.items())),
    "missing authors are texts": ("_identity", str),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reader_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: each careless version fails on some of the cases above."""
    function, careless = BROKEN[name]
    monkeypatch.setattr(quick_reader, function, careless)
    with pytest.raises(AssertionError):
        for body in PLAIN_CASES.values():
            check_plain(body)
        for data in JSON_CASES.values():
            check_json(data)


#: Broken decoders: the hook that is replaced, and its careless version.
BROKEN_HOOKS: dict[str, tuple[str, Callable[..., Any]]] = {
    "the last duplicate key counts": ("object_pairs_hook", dict),
    "decimals are binary": ("parse_float", lambda text: Fraction(float(text))),
    "decimals have any length": ("parse_float", Fraction),
}


@pytest.mark.parametrize("name", BROKEN_HOOKS)
def test_a_broken_decoder_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: each careless version fails on some of the cases above."""
    hook, careless = BROKEN_HOOKS[name]
    hooks: dict[str, Any] = {
        "object_pairs_hook": quick_reader._decode_map,
        "parse_float": quick_reader._decode_decimal,
        "parse_int": quick_reader._decode_integer,
        hook: careless,
    }
    monkeypatch.setattr(quick_reader, "_DECODER", json.JSONDecoder(**hooks))
    with pytest.raises(AssertionError):
        for data in JSON_CASES.values():
            check_json(data)


def release_files() -> list[Path]:
    """Return all files of the repository that hold one valid release."""
    found = []
    for directory in ("examples", "tests", "docs"):
        for file in sorted((ROOT / directory).rglob("*")):
            if file.suffix in (".yaml", ".yml", ".json") and file.is_file():
                try:
                    load_release(file)
                except (PolicyRejected, MalformedRelease, OSError):
                    continue
                found.append(file)
    return found


def test_every_release_of_the_repository_takes_the_quick_way() -> None:
    files = release_files()
    assert len(files) >= 10
    for file in files:
        release = load_release(file)
        quick = check_plain(release.body)
        assert quick == release, file
        assert check_json(encode_canonical(release.body)) == release, file


def test_release_from_plain_uses_the_quick_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpolicy.releases.release_parser.to_plain_body", None)
    assert release_from_plain(body_with()).id == "r"


def test_a_refused_body_has_the_diagnostics_of_the_strict_reader() -> None:
    with pytest.raises(MalformedRelease) as refusal:
        release_from_plain({**body_with(sigma=-1), "bye": "ann"})
    assert "has no key `bye`" in str(refusal.value)


def test_decoded_json_can_be_read_in_parts() -> None:
    """A service removes its own keys, such as `mode`, before it reads the release."""
    decoded = decode_json(b'{"mode":"reserve",' + JSON_CASES["decimal"][1:])
    assert decoded is not None
    assert read_decoded_body(decoded) is None
    assert decoded.pop("mode") == "reserve"
    assert parts(read_decoded_body(decoded)) == parts(strict_json(JSON_CASES["decimal"]))


@pytest.mark.parametrize("data", [b"[1]", b"1", b"", b"\xff", b"{" * 100_000, b'{"a":NaN}'])
def test_other_texts_are_not_decoded(data: bytes) -> None:
    assert decode_json(data) is None
