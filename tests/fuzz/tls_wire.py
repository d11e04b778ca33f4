"""A wire whose peer may speak TLS: it encrypts its script, or sends it in clear text to a port of TLS.

The first step of a script says which, if it is a ``Kind.PROOF``: by the lowest bits of its first byte.  A
later step of that kind is bytes that reach the code as they are, in the middle of TLS.
"""

from __future__ import annotations

import contextlib
import enum
import ssl
from collections.abc import Iterable
from typing import Any

from tests.certificates import Authority
from tests.fuzz.script import Kind, Step
from tests.fuzz.wire import Loop, Wire

_MOST_FLIGHTS = 6
_CHUNK = 65536


class Mode(enum.IntFlag):
    """A way in which the peer connects."""

    CERTIFICATE = 1
    """It has one."""
    CLEAR = 2
    """It speaks no TLS."""
    OLD = 4
    """It speaks TLS 1.2."""


def mode_of(steps: list[Step]) -> tuple[Mode, list[Step]]:
    """Return how the peer of a script connects, and what it does then."""
    if steps and steps[0].kind is Kind.PROOF:
        return Mode((steps[0].body[:1] or b"\x00")[0] & 7), steps[1:]
    return Mode(0), steps


class Contexts:
    """Certificates and contexts of clients and servers.

    :ivar authority: of all certificates.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self._mine = authority.issue("carol@example.test", common_name="carol")
        self._made: dict[Mode, ssl.SSLContext] = {}

    def client(self, mode: Mode) -> ssl.SSLContext | None:
        """The context of a peer; ``None`` for one without TLS."""
        if mode & Mode.CLEAR:
            return None
        if mode not in self._made:
            context = self.authority.client_context()
            context.check_hostname = False
            if mode & Mode.CERTIFICATE:
                context.load_cert_chain(self._mine.chain, self._mine.key)
            if mode & Mode.OLD:
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            self._made[mode] = context
        return self._made[mode]


class TlsWire(Wire):
    """One side of a connection whose other side is a script, within TLS.

    :ivar plain: what the code has written, decrypted.
    """

    def __init__(self, loop: Loop, protocol: Any, context: ssl.SSLContext | None) -> None:
        super().__init__(loop, protocol)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context and context.wrap_bio(self._incoming, self._outgoing)
        self.keep = context is None
        self.plain = bytearray()

    def write(self, data: Any) -> None:
        super().write(data)
        self._incoming.write(data)

    def say(self, steps: Iterable[Step]) -> None:
        if self._tls is not None:
            for _ in range(_MOST_FLIGHTS):
                with contextlib.suppress(ssl.SSLError):
                    self._tls.do_handshake()
                    break
                super()._arrive(self._outgoing.read())
        super().say(steps)

    def _arrive(self, data: bytes) -> None:
        if self._tls is None:
            super()._arrive(data)
            return
        # After an error the peer is silent, but for the bytes that are sent as they are.
        with contextlib.suppress(ssl.SSLError):
            self._tls.write(data)
        super()._arrive(self._outgoing.read())
        with contextlib.suppress(ssl.SSLError):
            while chunk := self._tls.read(_CHUNK):
                self.plain += chunk

    def _proof(self, step: Step) -> Step:
        super()._arrive(step.body)
        return Step(Kind.RAW)
