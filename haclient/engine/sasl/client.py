"""The client's side of SASL: bytes in, bytes out, before proton sees any.

Rules
-----
* ``_NEXT`` has the frames that may follow each other.  Any other frame ends the connection, and so does
  AMQP before the outcome.
* Each side sends its header at once; the client sends nothing of AMQP before an OK outcome.

Sources: AMQP 1.0 part 2, section 2.2 (headers), part 5, section 5.3 (SASL).
"""

from __future__ import annotations

import asyncio

import proton

from haclient.engine.sasl import channel_binding, frames, mechanisms
from haclient.engine.sasl.channel_binding import is_bound
from haclient.engine.sasl.frames import FRAMING_ERROR, UNAUTHORIZED, NotSaslError
from haclient.engine.sasl.mechanism import Mechanism, RefusedChallenge
from haclient.engine.settings import Settings

# The frames that may come first, and after each frame of the peer.
_NEXT: dict[int, tuple[int, ...]] = {
    0: (frames.MECHANISMS,),
    frames.MECHANISMS: (frames.CHALLENGE, frames.OUTCOME),
    frames.CHALLENGE: (frames.CHALLENGE, frames.OUTCOME),
}

Read = tuple[bytes, proton.Condition | None]


class ClientSasl:
    """The negotiation with one peer.

    :ivar done: whether the peer's further bytes are AMQP.
    :ivar offered: the mechanisms that the peer offers.
    :ivar mechanism: the mechanism that was chosen; ``None`` before that, and if there is none in common.
    :ivar outcome: the code of the outcome; ``None`` before it.
    """

    __slots__ = (
        "_bytes",
        "_chosen",
        "_last",
        "_settings",
        "done",
        "mechanism",
        "offered",
        "outcome",
    )

    def __init__(self, settings: Settings) -> None:
        self.done = False
        self.offered: tuple[str, ...] = ()
        self.mechanism: str | None = None
        self.outcome: int | None = None
        self._settings = settings
        self._chosen: Mechanism | None = None
        self._bytes = frames.Incoming()
        self._last = 0
        """The code of the peer's last frame."""

    @property
    def ended(self) -> bool:
        """Return whether the outcome was OK: AMQP may be sent."""
        return bool(self.outcome == proton.SASL.OK)

    @property
    def proved(self) -> bool:
        """Return whether the peer has proved its identity: see ``Mechanism``."""
        return self._chosen is not None and self._chosen.proved

    @property
    def user(self) -> str | None:
        """Return the name under which the client has logged in; ``None`` before that."""
        return self._settings.user if self.ended else None

    def read(self, socket: asyncio.Transport, data: bytes) -> Read:
        """Answer the complete frames; return the bytes after SASL, and the reason to end the connection."""
        self._bytes.held += data
        try:
            while not self.ended and (frame := self._bytes.next_frame()):
                if answer := self._answer(socket, frame):
                    socket.write(answer)
            self.done = self.ended and self._bytes.has_ended()
        except ValueError as error:
            return b"", proton.Condition(FRAMING_ERROR, str(error))
        except RefusedChallenge as error:
            if error.outcome is not None:
                self.outcome = error.outcome
            return b"", proton.Condition(UNAUTHORIZED, str(error))
        return (self._bytes.take() if self.done else b""), None

    def _answer(self, socket: asyncio.Transport, body: bytes) -> bytes:
        code, fields = frames.read_of_server(body)
        if code not in _NEXT[self._last] or not fields:
            raise NotSaslError("a SASL frame out of order")
        self._last = code
        if code == frames.MECHANISMS:
            return self._choose(socket, fields[0])
        assert self._chosen is not None
        if code == frames.CHALLENGE:
            return frames.response(self._chosen.answer(frames.message(fields[0])))
        self._end(fields)
        return b""

    def _choose(self, socket: asyncio.Transport, offered: bytes) -> bytes:
        self.offered = frames.names(offered)
        usable = mechanisms.usable(self._settings, tls=socket.get_extra_info("ssl_object") is not None)
        is_offered = any(map(is_bound, set(usable).intersection(self.offered)))
        binding = channel_binding.of_server(socket) if is_offered else None
        possible = (name for name in usable if binding is not None or not is_bound(name))
        name = next((name for name in possible if name in self.offered), None)
        if name is None:
            raise RefusedChallenge("no SASL mechanism in common")
        self.mechanism = name
        self._chosen = mechanisms.chosen(name, self._settings, binding)
        return frames.init(name, self._chosen.first(), self._settings.hostname)

    def _end(self, fields: list[bytes]) -> None:
        assert self._chosen is not None
        code = frames.outcome_code(fields[0])
        if code == proton.SASL.OK:
            self._chosen.end(frames.message(fields[1]) if len(fields) > 1 else b"")
        self.outcome = code
        if not self.ended:
            reason = f": {self._chosen.refusal}" if self._chosen.refusal else ""
            raise RefusedChallenge(f"Authentication failed [mech={self.mechanism}]{reason}")
