"""Search for the link whose Attach ends its connection again and again, so that it fails alone.

Rules
-----
* If a connection ends while exactly one Attach has no answer, its link is accused.
* When two connections in a row end with several Attaches unanswered, the links are attached one by one.
* A link that was accused three times in a row is guilty.  If the peer gave no reason, or one of a broker in
  trouble, the accusations must also span ``reattach_timeout``: a broker that dies whenever it starts ends
  connections like that, too.
* A peer that moves or stops, or a missing heartbeat, accuses no link.  If the client ended a session because
  an answer was overdue, this counts like an end by the peer without a reason.
* Any answered Attach clears the link.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import proton

from haclient.core.attach.answers import UNANSWERED
from haclient.core.attach.refusals import retry_seconds

L = TypeVar("L")

_GUILTY_AFTER = 3
_ONE_BY_ONE_AFTER = 2
_NOT_BY_LINKS = frozenset({"amqp:connection:forced", "amqp:connection:redirect"})
_OWN_PREFIX = "haclient:"


@dataclass(frozen=True, slots=True)
class _Record:
    count: int
    since: float


class Suspects(Generic[L]):
    """The accused links of one connection.

    :param reattach_timeout: seconds, see the rules.
    """

    def __init__(self, reattach_timeout: float) -> None:
        self._reattach_timeout = reattach_timeout
        self._accused: dict[L, _Record] = {}
        self._unclear = 0

    @property
    def one_by_one(self) -> bool:
        """Return whether to attach each link only after the peer has answered the one before."""
        return self._unclear >= _ONE_BY_ONE_AFTER

    def acquit(self, link: L) -> None:
        """Clear a link: the peer has answered its Attach, or it is closed."""
        self._accused.pop(link, None)

    def session_ended(
        self, unanswered: Sequence[L], condition: proton.Condition | None, now: float, *, by_peer: bool
    ) -> L | None:
        """Accuse a link of having ended the session, if the rules allow.

        :param unanswered: the links whose Attach had no answer.
        :param condition: why the connection ended; ``by_peer``: whether the peer closed it.
        :param now: the time, in seconds.
        :returns: the guilty link, if any.
        """
        if not unanswered:
            self._unclear = 0
            return None
        if not _by_link(condition, by_peer=by_peer):
            return None
        if len(unanswered) > 1:
            self._unclear += 1
            return None
        (link,) = unanswered
        former = self._accused.get(link, _Record(0, now))
        self._accused[link] = record = _Record(former.count + 1, former.since)
        if record.count < _GUILTY_AFTER or now - record.since < self._seconds(condition):
            return None
        del self._accused[link]
        return link

    def _seconds(self, condition: proton.Condition | None) -> float:
        if condition is None or condition.name == UNANSWERED:
            return self._reattach_timeout
        return retry_seconds(condition, first=False, reattach_timeout=self._reattach_timeout)


def _by_link(condition: proton.Condition | None, *, by_peer: bool) -> bool:
    if condition is None or condition.name == UNANSWERED:
        return True
    # Without a Close this is the transport's own idle time-out (section 2.4.5).
    timed_out = condition.name == "amqp:resource-limit-exceeded" and not by_peer
    return not (timed_out or condition.name in _NOT_BY_LINKS or condition.name.startswith(_OWN_PREFIX))
