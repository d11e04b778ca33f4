"""The client's side of SASL: bytes in, bytes out, before proton sees any.

Rules
-----
* ``_NEXT`` has the frames that may follow each other.  Any other frame ends the connection, and so does
  AMQP before the outcome.
* Each side sends its header at once; the client sends nothing of AMQP before an OK outcome.
* A frame is at most ``_MOST_BYTES`` long.

Sources: AMQP 1.0 part 2, section 2.2 (headers), part 5, section 5.3 (SASL).
"""

from __future__ import annotations

import asyncio

import proton

from haclient.engine.sasl import frames, mechanisms
from haclient.engine.sasl.frames import AMQP_HEADER, FRAMING_ERROR, SASL_HEADER, UNAUTHORIZED
from haclient.engine.sasl.mechanisms import Mechanism, RefusedChallenge
from haclient.engine.settings import Settings

_SIZE = len(SASL_HEADER)
# Enough for a token or a certificate; RFC 7628 has none longer than some kilobytes.
_MOST_BYTES = 65536
_SASL_TYPE = 1
# The frames that may come first, and after each frame of the peer.
_NEXT: dict[int, tuple[int, ...]] = {
    0: (frames.MECHANISMS,),
    frames.MECHANISMS: (frames.CHALLENGE, frames.OUTCOME),
    frames.CHALLENGE: (frames.CHALLENGE, frames.OUTCOME),
}

Read = tuple[bytes, proton.Condition | None]


class _FramingError(Exception):
    """The peer's bytes are not SASL."""


class ClientSasl:
    """The negotiation with one peer.

    :ivar done: whether the peer's further bytes are AMQP.
    :ivar offered: the mechanisms that the peer offers.
    :ivar mechanism: the mechanism that was chosen; ``None`` before that, and if there is none in common.
    :ivar outcome: the code of the outcome; ``None`` before it.
    """

    __slots__ = (
        "_begun",
        "_chosen",
        "_held",
        "_last",
        "_settings",
        "done",
        "mechanism",
        "offered",
        "outcome",
    )

    def __init__(self, settings: Settings) -> None:
        self.done = self._begun = False
        self.offered: tuple[str, ...] = ()
        self.mechanism: str | None = None
        self.outcome: int | None = None
        self._settings = settings
        self._chosen: Mechanism | None = None
        self._held = b""
        self._last = 0
        """The code of the peer's last frame."""

    @property
    def ended(self) -> bool:
        """Return whether the outcome was OK: AMQP may be sent."""
        return bool(self.outcome == proton.SASL.OK)

    @property
    def proved(self) -> bool:
        """Return whether the peer has proved that it knows the password."""
        return self._chosen is not None and self._chosen.proved

    @property
    def user(self) -> str | None:
        """Return the name under which the client has logged in; ``None`` before that."""
        return self._settings.user if self.ended else None

    def read(self, socket: asyncio.Transport, data: bytes) -> Read:
        """Answer the complete frames; return the bytes after SASL, and the reason to end the connection."""
        self._held += data
        try:
            while not self.ended and (frame := self._next_frame()):
                if answer := self._answer(frame):
                    socket.write(answer)
            self.done = self.ended and self._has_header()
        except (_FramingError, ValueError) as error:
            return b"", proton.Condition(FRAMING_ERROR, str(error))
        except RefusedChallenge as error:
            if error.is_outcome:
                self.outcome = proton.SASL.AUTH
            return b"", proton.Condition(UNAUTHORIZED, str(error))
        if not self.done:
            return b"", None
        rest, self._held = self._held, b""
        return rest, None

    def _has_header(self) -> bool:
        """Return whether AMQP follows.  proton would quote other bytes, which may echo a password."""
        header = self._held[:_SIZE]
        if not AMQP_HEADER.startswith(header):
            raise _FramingError("no AMQP header after the outcome of SASL")
        return len(header) == _SIZE

    def _next_frame(self) -> bytes:
        """Take the next whole frame; empty if it has not arrived."""
        if not self._begun:
            header = self._held[:_SIZE]
            if not SASL_HEADER.startswith(header):
                raise _FramingError("the peer does not begin with SASL")
            if len(header) < _SIZE:
                return b""
            self._begun, self._held = True, self._held[_SIZE:]
        if self._held.startswith(b"AMQP"):
            raise _FramingError("AMQP before the outcome of SASL")
        if len(self._held) < _SIZE:
            return b""
        size, offset = int.from_bytes(self._held[:4]), 4 * self._held[4]
        if self._held[5] != _SASL_TYPE or not _SIZE <= offset < size <= _MOST_BYTES:
            raise _FramingError("not a SASL frame")
        if len(self._held) < size:
            return b""
        frame, self._held = self._held[offset:size], self._held[size:]
        return frame

    def _answer(self, body: bytes) -> bytes:
        code, fields = frames.read_of_server(body)
        if code not in _NEXT[self._last] or not fields:
            raise _FramingError("a SASL frame out of order")
        self._last = code
        if code == frames.MECHANISMS:
            return self._choose(fields[0])
        assert self._chosen is not None
        if code == frames.CHALLENGE:
            return frames.response(self._chosen.answer(frames.message(fields[0])))
        self._end(fields)
        return b""

    def _choose(self, offered: bytes) -> bytes:
        self.offered = frames.names(offered)
        usable = mechanisms.usable(self._settings)
        name = next((name for name in usable if name in self.offered), None)
        if name is None:
            raise RefusedChallenge("no SASL mechanism in common")
        self.mechanism = name
        self._chosen = mechanisms.chosen(name, self._settings)
        return frames.init(name, self._chosen.first(), self._settings.hostname)

    def _end(self, fields: list[bytes]) -> None:
        assert self._chosen is not None
        code = frames.outcome_code(fields[0])
        if code == proton.SASL.OK:
            self._chosen.end(frames.message(fields[1]) if len(fields) > 1 else b"")
        self.outcome = code
        if not self.ended:
            raise RefusedChallenge(f"Authentication failed [mech={self.mechanism}]")
