"""Checks, on a client that uses SCRAM, that the peer knows the password as well.

proton regards an outcome as success even if the server has not proved itself, or Cyrus SASL has found the
proof wrong.  Any server may send an outcome: a listener at a member's address would pass for the primary.

Rules
-----
* SASL frames reach proton one by one, so that Cyrus has judged each before the next one.
* An OK outcome reaches proton only after Cyrus has accepted a server-final-message (``v=``).
* Some brokers (those on proton-j, as Artemis) send that message in the outcome, where Cyrus does not see it.
  This module passes it to Cyrus as a challenge.  proton does not answer that, because the outcome follows at
  once.
* A server-first-message with fewer than ``FEWEST_ITERATIONS`` is not answered.  The answer is computed from
  the password: the fewer iterations, the more passwords an eavesdropper can try in a second.
* A server-first-message with more than ``MOST_ITERATIONS`` is not answered either: computing them blocks the
  event loop.
* TLS of proton's own is out of scope: nothing can be read inside it.

Sources: RFC 5802, sections 3 (the client must authenticate the server) and 7 (server-final-message); AMQP 1.0
part 5, sections 5.3.3.3 to 5.3.3.6 (challenge, outcome and its additional-data); RFC 7677, section 4 (the
fewest iterations).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import proton

from haclient.engine.settings import Settings

UNPROVEN = "the peer did not prove that it knows the password"
WRONG_ITERATIONS = "the peer asks for a number of SCRAM iterations that this client refuses"
FEWEST_ITERATIONS = 4096
# Cyrus SASL computes no more, as a client or a server (MAX_ITERATION_COUNTER of its scram.c).
MOST_ITERATIONS = 0x10000
_DIGITS = len(str(MOST_ITERATIONS))
_QUOTED = 20
_HEADER = 8
_SASL = b"AMQP\x03\x01\x00\x00"
_CHALLENGE, _OUTCOME = 0x42, 0x44
_OK = 0
_SERVER_FINAL = b"v="
_FRAMING_ERROR, _UNAUTHORIZED = "amqp:connection:framing-error", "amqp:unauthorized-access"


class ServerProof:
    """The proof of one peer.

    :ivar done: whether SASL has ended, or the peer does not use it.
    """

    __slots__ = ("_begun", "_held", "_proved", "_sasl", "done")

    def __init__(self, transport: proton.Transport) -> None:
        self.done = self._begun = self._proved = False
        self._held = b""
        self._sasl = proton.SASL(transport)

    @staticmethod
    def is_needed(settings: Settings) -> bool:
        """Return whether a client with these settings may use SCRAM, and can read its peer's frames."""
        client = settings.sasl_server is None and settings.tls_domain is None
        return client and settings.sasl and settings.user is not None

    def read(self, data: bytes, push: Callable[[bytes], None]) -> tuple[bytes, proton.Condition | None]:
        """Push the complete frames; return the bytes after SASL, and the peer's error, if any."""
        self._held += data
        while not self.done:
            size = self._next_size()
            if self._begun and self._held.startswith(b"AMQP"):
                return b"", proton.Condition(_FRAMING_ERROR, "AMQP before the outcome of SASL")
            if not size or size > len(self._held):
                return b"", None
            frame, self._held = self._held[:size], self._held[size:]
            if not self._begun:
                self._begun, self.done = True, frame != _SASL
                push(frame)
            elif wrong := self._pass(frame, push):
                return b"", proton.Condition(_UNAUTHORIZED, wrong)
        rest, self._held = self._held, b""
        return rest, None

    def _next_size(self) -> int:
        """Return the size of the next frame; 0 while it is not known."""
        if not self._begun:
            return _HEADER if _SASL.startswith(self._held[:_HEADER]) else len(self._held)
        return int.from_bytes(self._held[:4]) if len(self._held) >= _HEADER else 0

    def _pass(self, frame: bytes, push: Callable[[bytes], None]) -> str:
        """Push the frame if it is allowed; return the reason if it is not."""
        code, fields = _decoded(frame)
        first = fields[0] if fields else None
        if code == _CHALLENGE and _is_final(first):
            self._prove(first, push)
            return ""
        if code == _CHALLENGE and self._is_scram and (wrong := _wrong_iterations(first)):
            return wrong
        # proton regards a value that is not a code as OK.
        refused = isinstance(first, proton.ubyte) and first != _OK
        if code == _OUTCOME and not refused and self._is_scram:
            additional = fields[1] if len(fields) > 1 else None
            if not self._proved and _is_final(additional):
                self._prove(additional, push)
            if not self._proved:
                return UNPROVEN
        push(frame)
        # proton also decides: it may have read another performative where ``_decoded`` read none.
        self.done = code == _OUTCOME and self._sasl.outcome is not None
        succeeded = self._sasl.outcome == proton.SASL.OK
        return UNPROVEN if succeeded and self._is_scram and not self._proved else ""

    @property
    def proved(self) -> bool:
        """Return whether the peer has proved that it knows the password."""
        return self._proved and self._is_scram

    @property
    def _is_scram(self) -> bool:
        return (self._sasl.mech or "").startswith("SCRAM-")

    def _prove(self, message: bytes, push: Callable[[bytes], None]) -> None:
        """Let Cyrus judge a server-final-message: proton sets an outcome of its own if it is wrong."""
        if self._sasl.outcome is None:
            push(_challenge(message))
            self._proved = self._sasl.outcome is None


def _is_final(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and value.startswith(_SERVER_FINAL)


def _wrong_iterations(message: object) -> str:
    """Return the error in the iteration count of a server-first-message, at any position; empty if none."""
    attributes = message.split(b",") if isinstance(message, bytes) else []
    for count in (each[2:] for each in attributes if each.startswith(b"i=")):
        # No sign and no space: Cyrus does not accept such a number either.
        number = int(count) if count.isdigit() and len(count) <= _DIGITS else 0
        if not FEWEST_ITERATIONS <= number <= MOST_ITERATIONS:
            asked = ascii(count[:_QUOTED].decode("latin-1"))
            return f"{WRONG_ITERATIONS}: {asked}; it takes {FEWEST_ITERATIONS:,} to {MOST_ITERATIONS:,}"
    return ""


def _decoded(frame: bytes) -> tuple[int, list[object]]:
    """Return the code and the fields of a performative; an outcome without fields if it is unreadable."""
    data = proton.Data()
    try:
        data.decode(frame[4 * frame[4] :])
        data.next()
        described: Any = data.get_py_described()
        fields = described.value if isinstance(described.value, list) else []
        return int(described.descriptor), [bytes(f) if isinstance(f, memoryview) else f for f in fields]
    except (proton.ProtonException, LookupError, ValueError, TypeError, AttributeError):
        return _OUTCOME, []


def _challenge(message: bytes) -> bytes:
    data = proton.Data()
    data.put_object(proton.Described(proton.ulong(_CHALLENGE), [message]))
    body = bytes(data.encode())
    return (_HEADER + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body
