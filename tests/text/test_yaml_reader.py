"""YAML reader: kinds of scalars, spans, and rejected features (threats T23 and T25)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from tests.policy.diagnose import (
    diagnose,
    diagnose_bytes,
    diagnostic_codes,
    error_codes,
    parse_valid,
    read_text,
)

from dpolicy.text.yaml_reader import (
    ListNode,
    MapNode,
    ScalarNode,
    Source,
    Span,
    TextNode,
    read_nodes,
)


def read_kind(text: str) -> tuple[str, list[str]]:
    """Return the kind of a value and the codes that the reader reported."""
    root, reported = read_text(f"k: {text}\n")
    value = root.get("k") if isinstance(root, MapNode) else None
    assert isinstance(value, ScalarNode)
    return value.kind, reported


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((t, "number") for t in ("0", "1", "-1", "+1", "1.5", ".5", "1.", "1e-7", "1E+7", "-0")),
        *((t, "number") for t in ("0.0", "0e0", "1e-400", "123456789012345678901234567890")),
        *((t, "text") for t in ("no", "yes", "on", "off", "No", "True", "FALSE", "Null", "NULL")),
        *((t, "text") for t in ("0x1F", "0o17", "1_000", "1:30", "1e", "e1", "1e-7x", "--1")),
        *((t, "text") for t in ("2026-10-28", "12:30:45", "1.2.3", "1,5", "inf", "nan", "a b")),
        *((t, "text") for t in ("'1'", '"1e-7"', "'true'", '"null"', "'.inf'", '""', "''")),
        *((t, "text") for t in ("١٢", "１２", "½", "1٠")),
        *((t, "null") for t in ("", "~", "null", "# only a comment")),
        *((t, "bool") for t in ("true", "false")),
        *((t, "non-finite") for t in (".inf", "-.inf", "+.INF", ".nan", ".NaN", "NaN")),
        *((t, "non-finite") for t in ("Infinity", "-Infinity", "-inf", "+nan")),
    ],
)
def test_a_plain_scalar_follows_the_core_schema(text: str, kind: str) -> None:
    assert read_kind(text) == (kind, [])


@pytest.mark.parametrize("text", ["010", "007", "-01", "+00", "00", "01.5", "08", "00e1", "012e-3"])
def test_a_leading_zero_is_rejected(text: str) -> None:
    assert read_kind(text) == ("invalid", ["P005"])


@pytest.mark.parametrize("text", ["1e401", "1e-401", "1e999999999", "1e99999999999999", "9" * 61])
def test_a_number_past_the_limits_is_rejected(text: str) -> None:
    assert read_kind(text) == ("invalid", ["P009"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("1e-7", Fraction(1, 10**7)),
        ("1E+2", Fraction(100)),
        (".5", Fraction(1, 2)),
        ("-0", Fraction(0)),
        ("0.30000000000000004", Fraction(30000000000000004, 10**17)),
        ("1.0000000000000000000000000000000000000001", 1 + Fraction(1, 10**40)),
        ("1e400", Fraction(10**400)),
    ],
)
def test_numbers_are_exact(text: str, value: Fraction) -> None:
    root, _ = read_text(text)
    assert isinstance(root, ScalarNode)
    assert root.number == value


BUDGET = (
    "dpolicy: 1\naccounting: {{delta: 1e-7}}\npolicies:\n"
    "  - {{name: p, kind: custom, when: always, unit: user, budget: {{epsilon: {}}}}}\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((t, []) for t in ("0", "1", "0.5", "1e-400", "100000", "1e5")),
        *((t, ["P009"]) for t in ("-1", "-1e-9", "100001", "1e400", ".inf", "-.inf", ".nan")),
        *((t, ["P009"]) for t in ("NaN", "Infinity", "1e401", "1e999999999", "9" * 100)),
        *((t, ["P007"]) for t in ("'1'", '"1e-6"', "1_000", "1:30", "0x1F", "no", "2026-10-28")),
        *((t, ["P007"]) for t in ("~", "true", "[1]", "{a: 1}", "", "１", "1,5")),
        *((t, ["P005"]) for t in ("010", "-01")),
    ],
)
def test_a_budget_must_be_a_number_in_range(text: str, expected: list[str]) -> None:
    value = f"[{text}]" if text == "1,5" else text  # an unquoted comma would split the flow map
    assert error_codes(BUDGET.format(value)) == expected


def test_help_for_values_that_are_almost_valid() -> None:
    def help_for(text: str) -> str | None:
        (reported,) = diagnose(BUDGET.format(text))
        return reported.help

    assert help_for("'1.5'") == "remove the quotes"
    assert help_for("'1,5'") == "write `1.5`"
    assert help_for("1_000") == "write `1000`"
    assert help_for(".inf") == "write `unlimited` for a budget without a bound"
    (flag,) = diagnose("dpolicy: 1\nschema: {labels: {l: {text: yes}}}\n")
    assert flag.help == "write `true`"
    (item,) = diagnose("dpolicy: 1\nunits: {user: {}, home: {covers: user}}\n")
    assert item.help == "write `[user]`"


def test_quoted_scalars_are_text() -> None:
    policies = parse_valid(
        'dpolicy: 1\nschema: {labels: {l: {values: ["no", "1", "null", "true"]}}}\n'
    )
    assert policies.labels["l"].values == ("no", "1", "null", "true")  # type: ignore[index]


def test_unquoted_names_are_kept_as_they_are_written() -> None:
    policies = parse_valid(
        "dpolicy: 1\nschema: {labels: {l: {values: [no, 1.50, true, 1e3, on]}}}\n"
    )
    assert policies.labels["l"].values == ("no", "1.50", "true", "1e3", "on")  # type: ignore[index]


def test_a_map_without_value_is_empty_where_nothing_is_required() -> None:
    policies = parse_valid(
        "dpolicy: 1\nunits:\n  user:\n  team: ~\nschema:\n  attributes:\n    zip:\n"
    )
    assert list(policies.units) == ["user", "team"]
    assert list(policies.attributes) == ["zip"]


def text_at(span: Span) -> str:
    """Return the text of a span within one line."""
    assert span.line == span.end_line
    return span.source.line(span.line)[span.column - 1 : span.end_column - 1]


SPANS = "héß: wert\n\"ключ\": [один, \"два три\", {x: 日本}]\nplain: 'it''s' # end\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_spans_of_keys_values_and_items(newline: str) -> None:
    root, reported = read_text(SPANS.replace("\n", newline))
    assert reported == []
    assert isinstance(root, MapNode)
    keys = [text_at(key.span) for key, _ in root.entries]
    assert keys == ["héß", '"ключ"', "plain"]
    first, second, third = (value for _, value in root.entries)
    assert text_at(first.span) == "wert"
    assert isinstance(second, ListNode)
    assert [text_at(item.span) for item in second.items] == ["один", '"два три"', "{x: 日本}"]
    assert text_at(third.span) == "'it''s'"
    assert str(third.span) == "t.yaml:3:8"


def test_spans_over_several_lines() -> None:
    root, _ = read_text("a: |\n  one\n  two\nb: 'three\n  four'\n")
    assert isinstance(root, MapNode)
    block, quoted = (value for _, value in root.entries)
    assert (block.span.line, quoted.span.line, quoted.span.end_line) == (1, 4, 5)
    assert isinstance(block, ScalarNode)
    assert isinstance(quoted, ScalarNode)
    assert (block.text, quoted.text) == ("one\ntwo\n", "three four")


def test_spans_outside_the_basic_plane_count_characters() -> None:
    root, _ = read_text("🙂🙂: {x: 🙃, y: end}\n")
    assert isinstance(root, MapNode)
    inner = root.entries[0][1]
    assert isinstance(inner, MapNode)
    assert [text_at(value.span) for _, value in inner.entries] == ["🙃", "end"]


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"dpolicy: 1\nname: a\x00b\n", "2:8"),
        (b"dpolicy: 1\nname: a\xffb\n", "2:8"),
        (b"dpolicy: 1\n# caf\xe9 in Latin-1\n", "2:6"),
        (b"dpolicy: 1\nname: \xc3\xa9\xed\xa0\x80\n", "2:8"),
        (b"dpolicy: 1\nname: a\x07\n", "2:8"),
        (b"dpolicy: 1\nname: a\x1b[31m\n", "2:8"),
        ("dpolicy: 1\n# hidden\u2028name: x\n".encode(), "2:9"),
        ("dpolicy: 1\n# hidden\u0085name: x\n".encode(), "2:9"),
        ("dpolicy: 1\nname: a\u202eb\n".encode(), "2:8"),
        (b"dpolicy: 1\n\tname: x\n", "2:1"),
        (b"dpolicy: 1\nname: 'x\n", "2:9"),
        (b"dpolicy: 1\nname: x: y\n", "2:8"),
        (b"dpolicy: 1\nname x\n", "2:7"),
        (b"dpolicy: 1\n  name: x\n", "2:7"),
        (b"dpolicy: 1\nunits: {user: {}\n", "2:17"),
        (b"dpolicy: 1\nunits: [}\n", "2:9"),
        (b"{\n", "1:2"),
        (b"dpolicy: 1\nname: @x\n", "2:7"),
        (b"dpolicy: 1\nname: `x`\n", "2:7"),
        (b"%YAML 3.0\n---\ndpolicy: 1\n", "1:1"),
        (b'dpolicy: 1\nname: "\\q"\n', "2:8"),
    ],
)
def test_a_syntax_error_is_reported_at_its_position(
    content: bytes, position: str, tmp_path: Path
) -> None:
    reported = diagnose_bytes(content, tmp_path)
    assert [d.code for d in reported] == ["P001"]
    assert f"{reported[0].span.line}:{reported[0].span.column}" == position
    assert str(reported[0]).isprintable() or "\n" in str(reported[0])


@pytest.mark.parametrize(
    ("content", "message", "help_"),
    [
        (b"a: {b: 1\n", "after `{`", "close the `{` in line 1, column 4"),
        (b"a: ['x, y]\n", "after `'`", "close the `'` in line 1, column 5"),
        (b"a:\n\tb: 1\n", "a tab is not allowed as indentation", "indent with spaces"),
        (b"a: b: c\n", "not allowed", "quote text that contains `: `"),
        (b"a: \xff\n", "the byte 0xff is not UTF-8", "save the file as UTF-8"),
        ("a: \u2066\n".encode(), "U+2066", "write it as an escape"),
    ],
)
def test_a_syntax_error_has_help(content: bytes, message: str, help_: str, tmp_path: Path) -> None:
    (reported,) = diagnose_bytes(content, tmp_path)
    assert message in reported.message
    assert help_ in (reported.help or "")


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    reported = diagnose_bytes("\ufeffdpolicy: 1\nnam: x\n".encode(), tmp_path)
    assert [(d.code, d.span.line, d.span.column) for d in reported] == [("P006", 2, 1)]
    assert diagnose_bytes("\ufeffdpolicy: 1\n".encode(), tmp_path) == ()


def test_windows_line_ends_are_line_ends(tmp_path: Path) -> None:
    (reported,) = diagnose_bytes(b"dpolicy: 1\r\nname: x\r\nnam: y\r\n", tmp_path)
    assert str(reported.span).endswith("policy.yaml:3:1")
    assert "\r" not in str(reported)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "--- \n...\n", "~\n"])
def test_an_empty_file_is_rejected(text: str) -> None:
    (reported,) = diagnose(text)
    assert (reported.code, reported.message) == ("P008", "the file is empty")


@pytest.mark.parametrize("text", ["5\n", "text\n", "- a\n", "[]\n", "true\n", "'x'\n"])
def test_a_file_that_is_not_a_map_is_rejected(text: str) -> None:
    assert error_codes(text) == ["P007"]


@pytest.mark.parametrize(
    "line",
    [
        "x: &a 1",
        "x: *a",
        "x: !!int 5",
        "x: !!str 5",
        "x: !local {a: 1}",
        "x: !!python/object/apply:os.system ['true']",
        "x: !<tag:yaml.org,2002:int> 5",
        "x: &a {b: 1}",
        "<<: {a: 1}",
        "x: {<<: [{a: 1}]}",
        "!!str x: 1",
        "? &k x\n: 1",
    ],
)
def test_anchors_aliases_tags_and_merge_keys_are_rejected(line: str) -> None:
    _, reported = read_text(f"dpolicy: 1\n{line}\n")
    assert set(reported) == {"P003"}


def test_quoted_indicators_are_text() -> None:
    root, reported = read_text("a: '*x'\n'<<': '&y'\nb: \"!z\"\n")
    assert reported == []
    assert isinstance(root, MapNode)
    assert [key.text for key, _ in root.entries] == ["a", "<<", "b"]


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2\n", "--- 1\n--- 2\n", "a: 1\n...\n---\nb: 1\n"])
def test_a_second_document_is_rejected(text: str) -> None:
    assert read_text(text) == (None, ["P003"])


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2\na: 3\n", "{a: 1, 'a': 2}", '{"a": 1, "\\u0061": 2}', "'a': 1\n? a\n: 2\n"],
)
def test_a_duplicate_key_is_rejected_in_every_spelling(text: str) -> None:
    _, reported = read_text(text)
    assert reported == ["P004"]


@pytest.mark.parametrize("text", ["? [a]\n: 1\n", "{[a]: 1}", "? {a: 1}\n: 2\n", "~: 1\n"])
def test_keys_are_text(text: str) -> None:
    _, reported = read_text(text)
    assert reported == ["P007"]


def plain(node: TextNode | None) -> object:
    """Return a node tree as plain values."""
    match node:
        case MapNode(entries=entries):
            return {key.text: plain(value) for key, value in entries}
        case ListNode(items=items):
            return [plain(item) for item in items]
        case ScalarNode(kind="number"):
            return node.number
        case ScalarNode(kind=kind, text=text):
            return {"true": True, "false": False}[text] if kind == "bool" else text
    return None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"b":[true,false,null],"c":"x"}', {"a": 1, "b": [True, False, "null"], "c": "x"}),
        ('{\n\t"a": {\n\t\t"b": 1.5e-3\n\t}\n}', {"a": {"b": Fraction(15, 10**4)}}),
        (r'{"a": "x\/y\"\\\b\f\n\r\té"}', {"a": 'x/y"\\\b\f\n\r\té'}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (r'{"\ud83d\ude00": {"b": [1, {}]}}', {"😀": {"b": [1, {}]}}),
        ('{"a": "\x7f\ud7ff"}', {"a": "\x7f\ud7ff"}),
        ('{"a"\n:\n1}', {"a": 1}),
        (f'{{"{"k" * 2000}": 1}}', {"k" * 2000: 1}),
    ],
)
def test_json_is_read_with_its_own_escapes(text: str, value: object) -> None:
    root, reported = read_text(text)
    assert reported == []
    assert plain(root) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"a": "\ud83d\ude00", "x": 1, "x": 2}', ["P004"]),
        (r'{"a": "\ud83d\ude00", "x": 01}', ["P001"]),
        (r'{"a": "\ud83d\ude00", "x": 1e999}', ["P009"]),
        (r'{"a": "\ud83d\ude00", "x": }', ["P001"]),
    ],
)
def test_json_is_as_strict_as_yaml(text: str, expected: list[str]) -> None:
    _, reported = read_text(text)
    assert reported == expected


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("name", ['"p"', r'"p\/"', r'"\ud83d\ude00"'])
def test_a_non_finite_json_number_is_rejected(word: str, name: str) -> None:
    text = (
        '{"dpolicy": 1, "accounting": {"delta": 1e-7}, "policies": [{"name": NAME, '
        '"kind": "custom", "when": "always", "unit": "user", "budget": {"epsilon": WORD}}]}'
    )
    assert "P009" in error_codes(text.replace("NAME", name).replace("WORD", word))


def test_an_unpaired_surrogate_is_rejected_and_printable() -> None:
    reported = diagnose(r'{"dpolicy": 1, "name": "\ud800", "x": "\/"}')
    assert {d.code for d in reported} <= {"P001", "P006", "P011"}
    assert "P011" in {d.code for d in reported} or "P001" in {d.code for d in reported}
    for diagnostic in reported:
        str(diagnostic).encode()


def test_yaml_and_json_have_the_same_model() -> None:
    yaml = "dpolicy: 1\nunits: {user: {}, team: {covers: [user]}}\naccounting: {delta: 1e-7}\n"
    json = (
        '{"accounting":{"delta":1E-7},"units":{"user":{},"team":{"covers":["user"]}},"dpolicy":1}'
    )
    assert parse_valid(yaml) == parse_valid(json)


def test_a_partly_readable_text_has_no_nodes() -> None:
    reported: list[str] = []
    source = Source("t.yaml", "a: 1\nb: {c: [1, 2\n")
    assert read_nodes(source, lambda code, *_: reported.append(code)) is None
    assert reported == ["P001"]


def test_names_outside_ascii_are_rejected() -> None:
    for name in ("uѕer", "user\u200b", "üser", "user ", " user", "user×x", "a[b]", "a@b", ""):
        assert diagnostic_codes(f"dpolicy: 1\nunits: {{{name!r}: {{}}}}\n") == ["P011"], name
