"""The attempts of this process that a peer has answered: a peer that works through many is slow, not dead.

A broker that sets up 40 connections a second needs 25 s for a thousand.  An attempt in the middle gets no
answer for longer than ``attempt_timeout``.  If the client repeated it, it would be the last in the queue, and
the broker would work for sockets that are closed already.

Rule
----
The time of an attempt with TCP begins anew when the same peer answers another attempt that was not dialled
later: by a frame of SASL, an Open or a Begin.  ActiveMQ Classic 5.17.6 sends most of a thousand clients the
first frame of SASL before it sends any of them its Open.

An answer to a later attempt does not count, because the peer has passed over this one.  So a peer that serves
every new connection and never this one does not keep it longer than any other.  As only older attempts count,
there is a last renewal.

One object serves all factories of a process, whichever threads their event loops run on.
"""

from __future__ import annotations

import math

from haclient.cluster_url.endpoint import Endpoint

# A broker does not answer in the order of the dials.  Among so many answers there is one to an older attempt,
# except for the few oldest attempts.
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
        while len(self._answers) > _MOST:  # two threads may try to remove the same one
            self._answers.pop(next(iter(tuple(self._answers))), None)

    def last(self, endpoint: Endpoint, dialled_at: float, now: float) -> float:
        """When the peer last answered an attempt that was not dialled later; minus infinity for never."""
        for dialled, answered in reversed(self._answers.get(endpoint, ())):
            if dialled <= dialled_at and answered <= now:
                return answered
        return -math.inf
