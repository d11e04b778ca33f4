"""Converts a program's output into a history for ``tests.faults.checker``. Pure.

::

    sent NUMBER                  the program gives a message to the client, for the first time
    accepted NUMBER              the outcome; refused: any other outcome; unknown: the client gave it up
    received LINK COUNT BODY     LINK: a number that changes with the link; COUNT: the delivery count
    connected HOST:PORT          the program sends or receives over a connection to this member
    redirected HOST:PORT         a passive member named this one, and the program follows
    lost HOST:PORT               the client reports that it lost a connection
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.faults.clients import decode
from tests.faults.history import Fate, History, Link, Name, Receipt

_FATES = {"accepted": Fate.ACKNOWLEDGED, "refused": Fate.REFUSED, "unknown": Fate.UNKNOWN}


class UnreadableLineError(AssertionError):
    """A program printed a line of another form."""


@dataclass(slots=True)
class Recorder:
    """One program's part of a history.

    :param name: the name of the producer or consumer.
    :param progress: when each message was accepted or received, in seconds of the monotonic clock.
    """

    history: History
    name: str
    queue: str
    progress: list[float] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)
    redirected: list[str] = field(default_factory=list)

    def read(self, line: str, at: float) -> None:
        """Record one line.

        :raises UnreadableLineError: if the line has no known form.
        """
        kind, _, rest = line.partition(" ")
        try:
            self._note(kind, rest, at)
        except ValueError:
            raise UnreadableLineError(f"{self.name} printed {line!r}") from None

    def _note(self, kind: str, rest: str, at: float) -> None:
        match kind:
            case "sent":
                self.history.sends(Name(self.name, int(rest)), self.queue)
            case "accepted" | "refused" | "unknown":
                self.history.ends(Name(self.name, int(rest)), _FATES[kind], at)
                if kind == "accepted":
                    self.progress.append(at)
            case "received":
                link, count, body = rest.split(" ", 2)
                place = Link(self.name, 0, int(link))
                self.history.receives(Receipt(decode(body), self.queue, place, int(count), at))
                self.progress.append(at)
            case "connected":
                self.connected.append(rest)
            case "redirected":
                self.redirected.append(rest)
            case "lost":
                pass
            case _:
                raise ValueError(kind)
