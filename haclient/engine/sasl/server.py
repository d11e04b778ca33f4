"""The server's side of SASL: bytes in, bytes out, before proton sees any.

Rules
-----
* ``_NEXT`` has the frames that may follow each other.
* SCRAM with channel binding is offered inside TLS.  A client that reports by the flag ``y`` that it got no
  such offer is refused.
* EXTERNAL is offered to a client whose certificate TLS has verified.
* A refused client gets the outcome, and its socket is closed.  After an OK outcome only the AMQP header may
  follow.
* A client may leave SASL out, unless the server requires a log-in.

Sources: AMQP 1.0 part 2, section 2.2 (headers), part 5, section 5.3 (SASL).
"""

from __future__ import annotations

import asyncio
import ssl

import proton

from haclient.engine.sasl import certificate_name, frames, server_mechanisms
from haclient.engine.sasl.channel_binding import bound, is_bound
from haclient.engine.sasl.cyrus import CyrusServer
from haclient.engine.sasl.frames import FRAMING_ERROR, SASL_HEADER, UNAUTHORIZED
from haclient.engine.sasl.mechanisms import BEARER, CLAIMS
from haclient.engine.sasl.server_mechanisms import Login, RefusedLogin, ServerMechanism
from haclient.engine.settings import SaslServer

_EXTERNAL = "EXTERNAL"
_QUOTED = 20
# The frames that may come first, and after each frame of the client.
_NEXT: dict[int, int] = {0: frames.INIT, frames.INIT: frames.RESPONSE, frames.RESPONSE: frames.RESPONSE}

Read = tuple[bytes, proton.Condition | None]


class ServerSasl:
    """The negotiation with one client.

    :ivar done: whether the client's further bytes are AMQP.
    :ivar login: the log-in, after an OK outcome.
    """

    __slots__ = (
        "_begun",
        "_bytes",
        "_chosen",
        "_cyrus",
        "_last",
        "_offered",
        "_server",
        "_subject",
        "done",
        "login",
    )

    def __init__(self, server: SaslServer) -> None:
        self.done = self._begun = False
        self.login: Login | None = None
        self._server = server
        self._bytes = frames.Incoming()
        self._cyrus: CyrusServer | None = None
        self._offered: tuple[str, ...] = ()
        self._subject = ""
        self._chosen: ServerMechanism | None = None
        self._last = 0
        """The code of the client's last frame."""

    @property
    def mechanism(self) -> str | None:
        """Return the client's mechanism; ``None`` before an OK outcome."""
        return None if self.login is None else self.login.mechanism

    @property
    def outcome(self) -> int | None:
        """Return the code of an OK outcome; ``None`` before it."""
        return None if self.login is None else proton.SASL.OK

    @property
    def user(self) -> str | None:
        """Return the client's name; ``None`` before an OK outcome."""
        return None if self.login is None else self.login.user

    def read(self, socket: asyncio.Transport, data: bytes) -> Read:
        """Answer the complete frames; return the bytes after SASL, and the client's error, if any.

        If the client is refused, the outcome is sent and the socket is closed.  After any other error, the
        caller must end the connection.
        """
        self._bytes.held += data
        if not self._begun and not SASL_HEADER.startswith(self._bytes.held[: len(SASL_HEADER)]):
            return self._skip()
        try:
            if not self._begun and self._bytes.begins():
                self._begin(socket)
            while self.login is None and (frame := self._bytes.next_frame()):
                socket.write(self._answer(frame))
            self.done = self.login is not None and self._bytes.has_ended()
        except ValueError as error:
            return b"", proton.Condition(FRAMING_ERROR, f"not SASL of a client: {error}")
        except RefusedLogin as refused:
            # The client must learn that a retry is useless.
            if refused.challenge:
                socket.write(frames.challenge(refused.challenge))
            socket.write(frames.outcome(refused.code or proton.SASL.AUTH))
            socket.close()
            return b"", proton.Condition(UNAUTHORIZED, str(refused))
        return (self._bytes.take() if self.done else b""), None

    def _skip(self) -> Read:
        """Pass bytes to proton if the client begins without SASL; proton reports any that are not AMQP."""
        if self._server.requires_sasl and self._bytes.held.startswith(b"AMQP"):
            return b"", proton.Condition(UNAUTHORIZED, "the client skipped SASL")
        self.done = True
        return self._bytes.take(), None

    def _begin(self, socket: asyncio.Transport) -> None:
        self._begun, self._subject = True, _subject(socket)
        tls = socket.get_extra_info("ssl_object") is not None
        if self._server.is_protons:
            self._cyrus = CyrusServer(encrypted=tls)
            others = tuple(name for name in self._cyrus.offered if name != _EXTERNAL)
            self._offered = (_EXTERNAL, *others) if self._subject else others
        else:
            self._offered = self._possible(tls=tls)
        socket.write(SASL_HEADER + frames.mechanisms(self._offered))

    def _possible(self, *, tls: bool) -> tuple[str, ...]:
        """Return the mechanisms that can be offered to this client."""
        users, possible = self._server.users, {"ANONYMOUS", CLAIMS}
        if users is not None:
            possible |= {"PLAIN", *users.mechanisms}
            if tls and self._server.binding is not None:
                possible.update(bound(users.mechanisms))
        if self._server.tokens is not None:
            possible |= {"PLAIN", *BEARER}
        if self._subject:
            possible.add(_EXTERNAL)
        return tuple(name for name in self._server.mechanisms if name in possible)

    def _answer(self, body: bytes) -> bytes:
        code, fields = frames.read(body)
        if code != _NEXT[self._last] or not fields:
            raise frames.NotSaslError("a SASL frame out of order")
        self._last = code
        if code == frames.INIT:
            self._chosen = self._choose((fields[0] or b"").decode("latin-1"))
            message = fields[1] if len(fields) > 1 else None
        else:
            message = fields[0] or b""
        assert self._chosen is not None
        answer = self._chosen.answer(message)
        if isinstance(answer, Login):
            self.login, self._chosen, self._cyrus = answer, None, None
            return frames.outcome(proton.SASL.OK)
        return frames.challenge(answer)

    def _choose(self, name: str) -> ServerMechanism:
        if name not in self._offered:
            raise RefusedLogin(f"the client chose {name[:_QUOTED]!a}, a mechanism that was not offered")
        if self._cyrus is not None and name != _EXTERNAL:
            self._cyrus.choose(name)
            return self._cyrus
        binding = self._server.binding if any(map(is_bound, self._offered)) else None
        return server_mechanisms.of_name(name, self._server, self._subject, binding)


def _subject(socket: asyncio.Transport) -> str:
    """Return the name in the client's certificate; empty without a verified one."""
    tls = socket.get_extra_info("ssl_object")
    if tls is None or tls.context.verify_mode is not ssl.CERT_REQUIRED:
        return ""
    certificate = tls.getpeercert(binary_form=True)
    try:
        return certificate_name.subject(certificate) if certificate else ""
    except ValueError:
        return ""
