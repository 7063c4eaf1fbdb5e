"""Record text: the answer and the record of a planned decision, from cached parts.

The record holds the answer as a JSON string. The parts of the answer are nested (`reason_text`), so
an answer is escaped once for all its decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from msgspec.json import Decoder

from dpolicy.pdp.plans.reason_text import nest_text
from dpolicy.releases.decision import Decision


class PlannedAnswer(NamedTuple):
    """An answer as it occurs inside the JSON string of its record; whether it allows the release.

    Its text and its decision are computed when they are read, which is after the commit.
    """

    nested: str
    allowed: bool

    @property
    def text(self) -> str:
        """The JSON text of the answer."""
        return _read_string(f'"{self.nested}"')

    @property
    def decision(self) -> Decision:
        """The decision of the answer."""
        return Decision.from_json(_read_object(self.text))


_read_string = Decoder(str).decode
_read_object = Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class RecordText:
    """Texts of a record and its answer that do not depend on id, time and numbers.

    `policy` is nested. `body_start` and `body_end` are the release body around its id.
    """

    policy: str
    body_start: str
    body_end: str
    author: str
    meaning: str

    def answer(
        self,
        release: str,
        sequence: int,
        errors: str,
        reasons: str,
        uncovered: str,
        *,
        allowed: bool,
    ) -> PlannedAnswer:
        """Return the answer of nested texts, for the record with the number `sequence`."""
        name = nest_text(encode_basestring(release))
        return PlannedAnswer(
            f"{_STARTS[allowed]}{errors}{_POLICY}{self.policy}{_REASONS}{reasons}{_RELEASE}{name}"
            f"{_SEQUENCE}{sequence}{_UNCOVERED}{uncovered}{_END}",
            allowed,
        )

    def payload(self, answer: PlannedAnswer, release: str, at: str, expires: str | None) -> bytes:
        """Return the canonical bytes of the event of a decided release.

        With `expires`, the release is reserved.
        """
        allowed = "true" if answer.allowed else "false"
        name = encode_basestring(release)
        is_reserved, until = ("false", "null") if expires is None else ("true", f'"{expires}"')
        return (
            f'{{"allowed":{allowed},"answer":"{answer.nested}","at":"{at}"'
            f',"body":{self.body_start}{name}{self.body_end},"by":{self.author}'
            f',"event":"release-decided","expires":{until},"format":3,"meaning":{self.meaning}'
            f',"release":{name},"reserved":{is_reserved}}}'
        ).encode()


#: Nested texts between the values of an answer, in the order of its keys.
_STARTS = {
    True: nest_text('{"decision": "allow", "errors": '),
    False: nest_text('{"decision": "deny", "errors": '),
}
_POLICY, _REASONS = nest_text(', "policy": '), nest_text(', "reasons": [')
_RELEASE = nest_text('], "release": ')
_SEQUENCE = nest_text(', "replayed": false, "sequence": ')
_UNCOVERED, _END = nest_text(', "uncovered": '), nest_text(', "would-fit": []}')
