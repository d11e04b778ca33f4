"""A wire whose peer may use TLS: it encrypts its script, or sends clear text to a TLS port.

If the first step is a ``Kind.PROOF``, the lowest bits of its first byte choose the mode. A later step
of that kind sends its bytes unencrypted in the middle of TLS.
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
    """The properties of the peer's connection."""

    CERTIFICATE = 1
    """With a certificate."""
    CLEAR = 2
    """Without TLS."""
    OLD = 4
    """With TLS 1.2."""


def mode_of(steps: list[Step]) -> tuple[Mode, list[Step]]:
    """Return the mode of a script's peer, and the remaining steps."""
    if steps and steps[0].kind is Kind.PROOF:
        return Mode((steps[0].body[:1] or b"\x00")[0] & 7), steps[1:]
    return Mode(0), steps


class Contexts:
    """Certificates and contexts of clients and servers.

    :ivar authority: the issuer of all certificates.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self._mine = authority.issue("carol@example.test", common_name="carol")
        self._made: dict[Mode, ssl.SSLContext] = {}

    def client(self, mode: Mode) -> ssl.SSLContext | None:
        """Return the context of a peer; ``None`` without TLS."""
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
    """One side of a connection within TLS; a script plays the peer.

    :ivar plain: the bytes that the code has written, decrypted.
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
        # After an error the peer sends only unencrypted bytes.
        with contextlib.suppress(ssl.SSLError):
            self._tls.write(data)
        super()._arrive(self._outgoing.read())
        with contextlib.suppress(ssl.SSLError):
            while chunk := self._tls.read(_CHUNK):
                self.plain += chunk

    def _proof(self, step: Step) -> Step:
        super()._arrive(step.body)
        return Step(Kind.RAW)
