"""Parts that `Client` and `AsyncClient` share: requests, retries and the ledger position."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import httpx

from dpolicy.client.wire import ApiCall, EndOfReservation, parse_response
from dpolicy.errors import LedgerUnavailable, OperationRejected
from dpolicy.ledger.chain_reader import Head
from dpolicy.text.summaries import html_line, one_line

T = TypeVar("T")

#: Seconds to wait before each retry; their number is the number of retries.
RETRY_DELAYS = (0.1, 0.3, 1.0, 3.0)
#: Seconds for one attempt. The server waits at most 30 seconds for the write lock of the ledger.
TIMEOUT = 60.0
#: Upper limit for the number of rules that `budgets` returns.
MAX_RULES_PER_CALL = 100_000
#: Number of records that `records` requests at once.
RECORDS_PER_PAGE = 1_000

#: Statuses after which the request was not executed or its outcome is unknown. A retry is safe.
_RETRY_STATUSES = frozenset({429, 502, 503, 504})
_POSITION_HEADER = "dpolicy-position"


class Attempts(Generic[T]):
    """Attempts to execute one call: the response of the last attempt, and earlier failures."""

    def __init__(self, call: ApiCall[T]) -> None:
        self._call = call
        self._delays = iter(RETRY_DELAYS)
        self._failure = ""
        self._response_lost = False
        self._response: httpx.Response | None = None

    def record_response(self, response: httpx.Response) -> None:
        """Record the response of an attempt."""
        self._response = response

    def record_failure(self, error: httpx.TransportError) -> None:
        """Record that no response arrived. The server may have executed the request."""
        self._response, self._response_lost = None, True
        self._failure = str(error) or type(error).__name__

    def next_delay(self) -> float | None:
        """Return the seconds to wait before the next attempt; None if there must be none."""
        if self._response is not None and self._response.status_code not in _RETRY_STATUSES:
            return None
        return next(self._delays, None)

    def result(self) -> T:
        """Return the value of the last response. Raise its error, or `LedgerUnavailable`."""
        if self._response is None:
            raise LedgerUnavailable(
                f"no response from the service ({self._failure}); the outcome is unknown\n"
                "help: retry with the same id"
            )
        return parse_response(self._call, self._response.status_code, self._response.content)

    def possible_end(self, error: OperationRejected) -> EndOfReservation | None:
        """Return the end of the reservation that an attempt with a lost response may have caused;
        None if `error` has another reason.
        """
        return self._call.ends if self._response_lost and error.code == "not-reserved" else None


class Session:
    """Address and headers of a server, and the newest ledger position in its responses."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self.position = Head()

    def __repr__(self) -> str:
        address = httpx.URL(self._url).copy_with(username=None, password=None, query=None)
        sequence = self.position.sequence
        return one_line(self, str(address), f"record {sequence}" if sequence else "")

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def _request_arguments(self, call: ApiCall[Any]) -> dict[str, Any]:
        headers = {} if call.body is None else {"content-type": "application/json"}
        return {
            "method": call.method,
            "url": self._url + call.path,
            "params": list(call.query),
            "content": call.body,
            "headers": headers,
        }

    def _update_position(self, response: httpx.Response) -> None:
        sequence, _, digest = response.headers.get(_POSITION_HEADER, "").partition(":")
        if sequence.isdigit() and int(sequence) >= self.position.sequence:
            self.position = Head(int(sequence), bytes.fromhex(digest))
