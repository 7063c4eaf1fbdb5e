"""Every public object prints in one short line, and its HTML is escaped."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.pdp.builders import GLOBAL, HEAD, body, mechanism, policy

import dpolicy
from dpolicy.client.wire import RemoteRuleStatus
from dpolicy.decisions.denial_advice.advice import SubmittedOffer
from dpolicy.integrations.gate import Gate, GatedObject
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.text.summaries import MAX_LENGTH, html_table, one_line, text_table

LONG_RULES = "".join(
    f"  - {{name: {'very-long-name-' * 5}{n}, kind: custom, when: always, unit: user,"
    f" budget: {{epsilon: {n + 1}}}}}\n"
    for n in range(12)
)
ATTACK = "<img src=x onerror=alert(1)>\x1b[31m\n"


class Reader(GatedObject):
    """A gated library."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._name = gate, "sql"


def public_objects() -> list[Any]:
    point = DecisionPoint(":memory:")
    compiled = policy(LONG_RULES)
    point.apply(compiled)
    attributes = ("views", "zip")
    request = body("r" * 90, *(mechanism(attributes, kind="gaussian", sigma=1) for _ in range(9)))
    release = release_from_plain(request)
    denied, allowed = point.submit(release), point.submit(body("s", mechanism(epsilon="0.1")))
    status = point.budgets()[0]
    gate = Gate(point, by="ana", attributes=attributes, unit="user")
    candidate = {**body("c", mechanism(epsilon="0.1")), "utility": 1}
    too_large = {**body("d", mechanism(epsilon="50")), "utility": 1}
    offer = SubmittedOffer(request, denied)
    result = dpolicy.allocate(point, [release_from_plain(b) for b in (candidate, too_large)])
    return [
        *(next(point.records()), compiled.cumulative, point.enforced_policy),
        *(point, compiled, release, *release.mechanisms[:1], denied, denied.reasons[0], allowed),
        *(status, status.rule, RemoteRuleStatus.from_json(status.as_json())),
        *(gate, gate.reserve("run", mechanism(epsilon="0.1")), Reader(gate)),
        *(result, result.not_selected[0], offer),
        dpolicy.Client("http://ana:secret@127.0.0.1:1/", "token-of-ana"),
        dpolicy.AsyncClient("http://127.0.0.1:1"),
    ]


OBJECTS = public_objects()


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_an_object_prints_in_one_short_line(value: Any) -> None:
    text = repr(value)
    assert text.startswith(f"<{type(value).__name__} ") and text.endswith(">")
    assert len(text) < 200 and text.isprintable()
    assert "secret" not in text and "token" not in text


class Tags(HTMLParser):
    """Collector of the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.add(tag)


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_an_object_has_html_of_known_tags(value: Any) -> None:
    known = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "code"}
    assert Tags(value._repr_html_()).tags <= known


def test_untrusted_names_do_not_become_tags() -> None:
    decision = next(value for value in OBJECTS if isinstance(value, Decision))
    reason = replace(decision.reasons[0], rule=ATTACK, location={"country": ATTACK})
    hostile = replace(decision, release=ATTACK, reasons=(reason,))
    for value in (hostile, reason):
        assert "img" not in Tags(value._repr_html_()).tags
        assert repr(value).isprintable()


def test_a_policy_prints_its_name() -> None:
    compiled = policy(GLOBAL, head=HEAD.replace("dpolicy: 1", "dpolicy: 1\nname: acme"))
    assert "<CompiledPolicy acme, 1 of 1 rules kept, sha256:" in repr(compiled)


def test_a_line_has_a_maximum_length() -> None:
    assert one_line(3, "a", "", "b") == "<int a, b>"
    assert one_line(3) == "<int>"
    assert len(one_line(3, "x" * 500)) <= MAX_LENGTH + 3
    assert text_table(("a", "b", "c"), [("1", "", "x\ny"), ("22", "", "")]) == (
        "a   c\n1   x�y\n22"
    )
    assert html_table("<c>", ("a",), [("<b>",)]) == (
        "<table><caption>&lt;c&gt;</caption><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>"
    )


def test_a_client_that_read_no_record_prints_none() -> None:
    assert repr(dpolicy.Client("http://127.0.0.1:1")) == "<Client http://127.0.0.1:1>"


def test_a_submitted_offer_is_true_exactly_if_its_release_is_allowed() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(GLOBAL))
    submitted = point.submit_offer(body("big", mechanism(kind="laplace", scale="0.1")), 1)
    assert submitted
    assert repr(submitted) == "<SubmittedOffer big-2 allowed, record 2>"
    denied = replace(submitted, decision=replace(submitted.decision, allowed=False))
    assert not denied
    assert "denied" in denied._repr_html_()
