"""One line of the API: a method and a path, who may use it, what goes in and what comes out.

Everything that is said of the API (routes, OpenAPI, the matrix of roles) is made of these values,
so none of it can drift. `run` blocks, and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.auth.access_rules import AccessRules
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.http.metrics import Metrics
from dpolicy.text.shapes import Shape


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that was let in: where, by whom, and what it says."""

    decision_point: DecisionPoint
    access: AccessRules
    metrics: Metrics
    principal: Principal
    base_url: str
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What is answered: plain values with the position of the ledger, or a longer text in parts."""

    value: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    includes_position: bool = True
    chunks: Iterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of the query: text, a whole number from `least` to `most`, or a choice."""

    description: str
    choices: tuple[str, ...] = ()
    whole: bool = False
    least: int = 0
    most: int = 2**53
    many: bool = False
    default: Any = None

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""
        if self.whole:
            return {"type": "integer", "minimum": self.least, "maximum": self.most}
        one = {"enum": list(self.choices)} if self.choices else {"type": "string"}
        return {"type": "array", "items": one} if self.many else one


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A line of the table. Without roles, it is open to everybody, known or not.

    `answer` names a schema; `problems` are the codes that only this line can answer with. What
    `waits` may answer 202: a second person has to agree.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[ApiRequest], ApiResponse]
    roles: frozenset[Role]
    answer: str
    body: Shape | None = None
    query: Mapping[str, QueryParameter] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    media_type: str = "application/json"
    may_need_approval: bool = False
    blocks: bool = True
