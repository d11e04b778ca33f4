"""Reports the failed attempts of a search, as proton does: ``on_transport_error`` once for each.

Rules
-----
* The addresses of one name are one attempt, which fails with the last of them.
* Two outcomes are not reported: a member answered in AMQP but does not serve; another attempt won the race.
* When the search gives up after an attempt, its error reports both.  So an error that may be the last one is
  reported only when the search continues: a name's further addresses may arrive late, or never.
* No error has the condition ``amqp:unauthorized-access``: proton's handlers would close the connection, but
  the search continues with members that accept the credentials.
* While no call of ``haclient.utils`` waits, nothing is reported: no handler runs, and the events of a long
  outage would fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import FailureReason
from haclient.events import AttemptFailed, AttemptStarted, BackingOff, Connected, Event, Reconnected

if TYPE_CHECKING:
    from haclient.discovery.topology import Topology

# The names that proton gives socket errors (its reactor), and a peer's violations of AMQP.
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

# After one of these events the earlier failure was not the end of the search.
_SEARCH_CONTINUES = AttemptStarted | BackingOff | Connected | Reconnected


class AttemptErrors:
    """The failed attempts of one connection (an ``event_log.Subscription``).

    :param report: called with the name and the description of each error.
    :param topology: returns the known members.
    :param gave_up: whether the search has given up, and will report that itself.
    :param is_dialling: whether another attempt is in progress.
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
        if isinstance(event, _SEARCH_CONTINUES):
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
        """Handle the end of the connection: nothing to do."""

    def _is_whole(self, endpoint: Endpoint) -> bool:
        """Return whether all other addresses of the same name have failed too."""
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
    """Return the URL of a member, with the name that the application wrote if its address was looked up."""
    if endpoint.origin is not Origin.RESOLVED or not endpoint.server_name:
        return str(endpoint)
    return str(Endpoint(endpoint.server_name, endpoint.port, endpoint.tls))
