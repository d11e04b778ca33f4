"""Which attempts of this process a peer has answered: it may work through many, and be slow and not dead.

A broker that sets up 40 connections a second needs 25 s for a thousand.  An attempt in the middle hears
nothing for longer than ``attempt_timeout``; if it is dropped and made again, it is the last one in the queue,
and the broker works for sockets that nobody reads.

Rule
----
The time of an attempt with TCP begins anew when the same peer answers another one that was not dialled later:
by a frame of SASL, an Open or a Begin.  ActiveMQ Classic 5.17.6 sends most of a thousand clients the first
frame of SASL before it sends any of them its Open.

An answer to a later attempt does not count: it says that this one was passed over.  So a peer that serves
every new connection and never this one keeps it no longer than any other; and as only older attempts count,
there is a last renewal.

One object serves all factories of a process, whichever threads their event loops run on.
"""

from __future__ import annotations

import math

from haclient.cluster_url.endpoint import Endpoint

# A broker answers in another order than that of the dials.  Of so many answers, one to an older attempt is
# among them but for the very oldest, which are few.
_LATEST = 64
_MOST = 256
"""Endpoints; as many as the topology keeps failures of."""

_Answers = tuple[tuple[float, float], ...]


class SetupAnswers:
    """The latest answers of each endpoint: when the attempt was dialled, and when it was answered.

    It needs no lock, which a fork could leave locked: every value is replaced as a whole.  If two threads do
    so at once an answer may be lost, and the next one follows.
    """

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[Endpoint, _Answers] = {}

    def note(self, endpoint: Endpoint, dialled_at: float, now: float) -> None:
        """The peer has answered an attempt."""
        self._answers[endpoint] = (*self._answers.pop(endpoint, ())[1 - _LATEST :], (dialled_at, now))
        if len(self._answers) > _MOST:
            self._answers.pop(next(iter(tuple(self._answers))), None)

    def last(self, endpoint: Endpoint, dialled_at: float, now: float) -> float:
        """When the peer last answered an attempt that was not dialled later; minus infinity for never."""
        for dialled, answered in reversed(self._answers.get(endpoint, ())):
            if dialled <= dialled_at and answered <= now:
                return answered
        return -math.inf
