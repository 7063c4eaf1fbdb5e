"""Gate: reserves the cost of a run before it starts and commits it afterwards (theory 2.6, 7).

A denial is raised before any data is read. After a run has started, its cost is spent in all cases:
an exception, a timeout or a killed process may depend on the data and is then an output. A release
is voided only by code that can attest that nothing was read. A re-run is a new release.

A gate does not protect the data: code in the same process that holds the data can bypass it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol
from uuid import uuid4

from dpolicy.errors import Denied, OperationRejected, RequestRefused
from dpolicy.integrations.stated_unit import state_unit
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.denial_text import describe_denial
from dpolicy.text.summaries import html_line, list_names, one_line


class ReservationService(Protocol):
    """Decision point in this process, or a client of a server."""

    def reserve(self, release: Body, /) -> Decision:
        """Decide a release and, if it is allowed, reserve its cost."""

    def commit(self, release: str, /, used: Body | None = None) -> object:
        """End a reservation as used: in full, or with the smaller release `used`."""

    def void(self, release: str, /, because: str) -> object:
        """End a reservation as unused and return its budget."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Decision point and the fields that all mechanisms of a pipeline share.

    The fields are those of a release (docs/releases.md). `attributes` lists every attribute that
    can influence an output. Integrations that can inspect a query refuse one that reads others.
    """

    point: ReservationService
    by: str = ""
    labels: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    attributes: Sequence[str] = ()
    unit: str | None = None
    relation: str | None = None
    additive: bool = False
    where: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    time: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        attributes = f"attributes {list_names(self.attributes)}" if self.attributes else ""
        unit = f"unit {self.unit}" if self.unit else ""
        return one_line(self, self.by and f"by {self.by}", unit, attributes, repr(self.point))

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    @property
    def boxes(self) -> list[Mapping[str, Any]]:
        """Boxes whose union is `where`; one empty box, which selects all users, without it."""
        return [self.where] if isinstance(self.where, Mapping) else list(self.where or [{}])

    def mechanism_fields(
        self,
        mechanism: Mapping[str, Any],
        *,
        also: Mapping[str, Mapping[str, Any]] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return one mechanism of a release; `also` restates its parameters for other units.

        The unit and the relation are always stated. Refuse a gate without a unit if the policy has
        several.
        """
        unit, relation = state_unit(self.point, self.unit, self.relation)
        fields = {
            "name": name,
            "mechanism": mechanism,
            "also": also,
            "unit": unit,
            "relation": relation,
            "additive": self.additive,
            "attributes": self.attributes,
            "labels": self.labels,
            "where": self.where,
            "time": self.time,
        }
        return {key: value for key, value in fields.items() if value}

    def reserve(self, name: str, *mechanisms: Body, release: str | None = None) -> GatedRun:
        """Reserve the cost of mechanisms and return a run, or raise `Denied`.

        Run the mechanisms inside `with` on the returned run. By default the release id is `name`
        with a unique suffix, so every run is charged. An id passed as `release` can run only once.
        """
        body = self.release_body(release or f"{name}-{uuid4().hex}", mechanisms)
        decision = self.point.reserve(body)
        if not decision.allowed:
            raise Denied(decision, describe_denial(decision, body))
        # A unique id is replayed only if the client retries a request, and then the run is new.
        if release and decision.replayed:
            raise OperationRejected(
                f"release `{release}` was already run; a re-run is another release: use a new id"
            )
        return GatedRun(self, body, decision)

    def release_body(self, release: str, mechanisms: Sequence[Body]) -> Body:
        """Return the body of a release of these mechanisms by the author of the gate."""
        body: dict[str, Any] = {"release": release, "mechanisms": list(mechanisms)}
        return {**body, "by": self.by} if self.by else body


class GatedObject:
    """An object of a library behind a gate, with a short summary for shells and notebooks."""

    _gate: Gate
    _name: str

    def __repr__(self) -> str:
        return one_line(self, self._name, repr(self._gate))

    def _repr_html_(self) -> str:
        return html_line(repr(self))


class GatedRun:
    """Reserved release while it runs. Leaving the block commits it; in full after an exception."""

    def __init__(self, gate: Gate, body: Body, decision: Decision) -> None:
        self.release: str = body["release"]
        self.decision = decision
        self._gate = gate
        self._reserved = body
        self._used: Body | None = None
        self._open = True

    def __repr__(self) -> str:
        return one_line(self, self.release, "running" if self._open else "ended")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def report_used(self, *mechanisms: Body) -> None:
        """Charge only these mechanisms, if the block then ends without an exception.

        This is sound only if the decision to stop depended on outputs alone (theory 7).
        """
        self._check_open()
        self._used = self._gate.release_body(self.release, mechanisms)

    def void_unread(self, because: str) -> None:
        """Void the release. Call this only if no data was read and none will be."""
        self._check_open()
        self._gate.point.void(self.release, because=because)
        self._open = False

    def commit(self) -> None:
        """End the run and charge the reported mechanisms, or else the full reservation."""
        self._check_open()
        self._open = False
        self._commit_reservation()

    def _commit_reservation(self) -> None:
        try:
            self._gate.point.commit(self.release, used=self._used)
        except OperationRejected:
            if self._used is not None or not self._has_expired():
                raise
        except RequestRefused as error:
            if self._used is None or error.code != "needs-second-person":
                raise
            self._used = None  # A partial commit needs a second approver: charge everything.
            self._commit_reservation()

    def _has_expired(self) -> bool:
        """Return whether the reservation expired during a long run, and so counts as spent.

        Reserving it again then returns the recorded decision, which is allowed. A release that was
        voided is not allowed.
        """
        return self._gate.point.reserve(self._reserved).allowed

    def _check_open(self) -> None:
        if not self._open:
            raise OperationRejected(f"the run of release `{self.release}` has ended")

    def __enter__(self) -> GatedRun:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._open:
            return
        if error is not None:
            self._used = None  # The cause may depend on the data: charge everything.
        self.commit()
