"""Reports the attempts of a search that failed, as proton does: ``on_transport_error`` once for each.

Rules
-----
* The addresses of one name are one attempt: it fails with the last of them.
* A member that answers in AMQP and does not serve is no error of the transport, and an attempt that another
  one made needless did not fail: neither is reported.
* When the search gives up with an attempt, its error reports both.  So an error that may be the last one is
  reported when the search goes on: the addresses of a name may arrive late, or not at all.
* None has the condition ``amqp:unauthorized-access``: proton's handlers close the connection at that one, and
  the search goes on with the members that accept the credentials.
* While ``haclient.utils`` waits for nothing, nothing is reported: no handler is called, and the events of a
  long outage would fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import FailureReason
from haclient.events import AttemptFailed, AttemptStarted, BackingOff, Connected, Event, Reconnected

if TYPE_CHECKING:
    from haclient.discovery.topology import Topology

# The name that proton's own reactor gives errors of sockets, and that proton gives a peer's breach of AMQP.
SOCKET_ERROR = "proton.pythonio"
_FRAMING_ERROR = "amqp:connection:framing-error"

_NAMES = {
    FailureReason.UNRESOLVED: SOCKET_ERROR,
    FailureReason.REFUSED: SOCKET_ERROR,
    FailureReason.UNREACHABLE: SOCKET_ERROR,
    FailureReason.TIMED_OUT: SOCKET_ERROR,
    FailureReason.DISPLACED: SOCKET_ERROR,
    FailureReason.AUTHENTICATION: SOCKET_ERROR,
    FailureReason.AUTHENTICATION_TEMPORARY: SOCKET_ERROR,
    FailureReason.ENDED: _FRAMING_ERROR,
    FailureReason.NOT_AMQP: _FRAMING_ERROR,
    FailureReason.TLS_FAILED: _FRAMING_ERROR,
    FailureReason.TLS_VERIFICATION: _FRAMING_ERROR,
}

# Behind one of these, what failed before was not the end of the search.
_GOES_ON = AttemptStarted | BackingOff | Connected | Reconnected


class AttemptErrors:
    """The failed attempts of one connection (an ``event_log.Subscription``).

    :param report: called with the name and the description of each error.
    :param topology: returns what is known of the members.
    :param gave_up: whether the search has given up, and will say so itself.
    :param is_dialling: whether another attempt is under way.
    """

    def __init__(
        self,
        report: Callable[[str, str], None],
        topology: Callable[[], Topology | None],
        gave_up: Callable[[], bool],
        is_dialling: Callable[[], bool],
    ) -> None:
        self._report = report
        self._topology = topology
        self._gave_up = gave_up
        self._is_dialling = is_dialling
        self._failed: set[Endpoint] = set()
        self._unreported: tuple[str, str] | None = None

    def put(self, event: Event) -> None:
        """Handle one event of the connection."""
        if isinstance(event, Connected | Reconnected):
            self._failed.clear()
        if isinstance(event, _GOES_ON):
            self._report_last()
        if not isinstance(event, AttemptFailed) or not self._is_whole(event.record.endpoint):
            return
        failure, endpoint = event.record.failure, event.record.endpoint
        name = _NAMES.get(failure.kind)
        if name is None:
            return
        self._report_last()
        self._unreported = (name, f"{url_of(endpoint)}: {failure.detail or failure.kind.value}")
        if self._is_dialling() and not self._gave_up():
            self._report_last()

    def _report_last(self) -> None:
        if self._unreported is not None:
            self._report(*self._unreported)
            self._unreported = None

    def end(self) -> None:
        """The connection has ended."""

    def _is_whole(self, endpoint: Endpoint) -> bool:
        """Whether no other address of the same name is still to be tried."""
        if endpoint.origin is not Origin.RESOLVED:
            return True
        topology = self._topology()
        known = set() if topology is None else {each for _, found in topology.resolved for each in found}
        same = {each for each in known if _name_of(each) == _name_of(endpoint)} | {endpoint}
        self._failed = (self._failed & known) | {endpoint}
        if not same <= self._failed:
            return False
        self._failed -= same
        return True


def _name_of(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.tls_name, endpoint.port


def url_of(endpoint: Endpoint) -> str:
    """The URL of a member, with the name that the application wrote if its address was looked up."""
    if endpoint.origin is not Origin.RESOLVED or not endpoint.server_name:
        return str(endpoint)
    return str(Endpoint(endpoint.server_name, endpoint.port, endpoint.tls))
