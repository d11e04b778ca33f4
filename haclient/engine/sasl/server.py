"""The server's side of SASL for clients with user names: proton sees only the AMQP that follows.

Theory of operation
-------------------
Python's ``ssl`` knows a client's certificate, but cannot pass it to proton.  So EXTERNAL is answered here.
Cyrus SASL handles the other mechanisms, behind a second transport of proton that lives until the outcome.
Single frames go into it, and its answers are passed on.  ``FrameOrder`` has checked the bytes before.

Rules
-----
* EXTERNAL is offered to a client whose certificate TLS has verified; its user name is the certificate's.
* A client that asks for the authority of another name is refused.
* The first message of SCRAM is answered even for users who do not exist (``scram_decoy``).
* If names have no realm (``SaslServer.realms``), a name with a realm is refused: two names never become one.
* A refused client gets the outcome, and its socket is closed.  After an OK outcome only the AMQP header may
  follow.

Sources: AMQP 1.0 part 2, section 2.2 (headers), part 5, section 5.3 (SASL); RFC 4422, section 2 (identities)
and appendix A (EXTERNAL).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass

import proton

from haclient.engine.sasl import certificate_name, frames, scram_decoy
from haclient.engine.sasl.cyrus import configure_server
from haclient.engine.sasl.frames import AMQP_HEADER, FRAMING_ERROR, SASL_HEADER, UNAUTHORIZED
from haclient.engine.settings import SaslServer, Settings

_HEADER = len(SASL_HEADER)
_EXTERNAL = "EXTERNAL"
_UNPROVEN = "the client did not prove who it is"

Read = tuple[bytes, proton.Condition | None]


@dataclass(frozen=True, slots=True)
class Login:
    """The log-in of a client.

    :param user: its name; meaningless for ANONYMOUS.
    """

    mechanism: str
    user: str


class ServerSasl:
    """The negotiation with one client.

    :ivar done: whether the client's further bytes are AMQP.
    :ivar login: the log-in, after an OK outcome.
    """

    __slots__ = (
        "_begun",
        "_cyrus",
        "_decoyed",
        "_held",
        "_offered",
        "_scram",
        "_server",
        "_settings",
        "_subject",
        "done",
        "login",
    )

    def __init__(self, settings: Settings, server: SaslServer) -> None:
        self.done = self._begun = False
        self.login: Login | None = None
        self._settings, self._server = settings, server
        self._held = b""
        self._cyrus: proton.Transport | None = None
        self._offered: tuple[str, ...] = ()
        self._subject = ""
        self._scram = ""
        """The mechanism whose first message is due."""
        self._decoyed = False
        """Set if the first message named a user who does not exist, and was answered."""

    @staticmethod
    def of(settings: Settings) -> ServerSasl | None:
        """Return a new negotiation; ``None`` if proton does it alone (see ``Settings.answers_sasl``)."""
        server = settings.sasl_server
        return ServerSasl(settings, server) if server is not None and settings.answers_sasl else None

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
        self._held += data
        if not self._begun:
            start = self._held[:_HEADER]
            if len(start) < _HEADER and SASL_HEADER.startswith(start):
                return b"", None
            if start != SASL_HEADER:
                return self._skip()
            self._begin(socket)
        while self.login is None:
            if self._held.startswith(b"AMQP"):
                return b"", proton.Condition(FRAMING_ERROR, "AMQP before the outcome of SASL")
            size = int.from_bytes(self._held[:4]) if len(self._held) >= _HEADER else _HEADER
            if size > len(self._held):
                return b"", None
            frame, self._held = self._held[:size], self._held[size:]
            refused = self._answer(socket, frame)
            if refused is not None:
                return b"", refused
        return self._end()

    def _skip(self) -> Read:
        """Pass bytes to proton if the client begins without SASL; proton reports any that are not AMQP."""
        if self._server.requires_sasl and self._held.startswith(b"AMQP"):
            return b"", proton.Condition(UNAUTHORIZED, "the client skipped SASL")
        self.done = True
        return self._rest(), None

    def _begin(self, socket: asyncio.Transport) -> None:
        self._begun, self._held = True, self._held[_HEADER:]
        self._subject = _subject(socket)
        wanted = self._server.mechanisms
        others = tuple(name for name in wanted if name != _EXTERNAL)
        if others or not wanted:
            self._cyrus = proton.Transport(proton.Transport.SERVER)
            configure_server(self._cyrus, self._server, others, plaintext=self._settings.plaintext)
            found = _offer(_exchange(self._cyrus, SASL_HEADER))
            self._offered = tuple(name for name in found if name != _EXTERNAL)
        if self._subject and (_EXTERNAL in wanted or not wanted):
            self._offered = (_EXTERNAL, *self._offered)
        socket.write(SASL_HEADER + frames.mechanisms(self._offered))

    def _end(self) -> Read:
        """Return the bytes after an OK outcome, which must begin with the AMQP header."""
        header = self._held[:_HEADER]
        if not AMQP_HEADER.startswith(header):
            return b"", proton.Condition(FRAMING_ERROR, "no AMQP header after the outcome of SASL")
        if len(header) < _HEADER:
            return b"", None
        self.done = True
        self._cyrus = None
        return self._rest(), None

    def _rest(self) -> bytes:
        rest, self._held = self._held, b""
        return rest

    # -- the frames -----------------------------------------------------------------------------

    def _answer(self, socket: asyncio.Transport, frame: bytes) -> proton.Condition | None:
        try:
            code, fields = frames.read(frame)
        except ValueError as error:
            return proton.Condition(FRAMING_ERROR, f"not a frame of a SASL client: {error}")
        if code == frames.INIT:
            chosen = (fields[0] or b"").decode("latin-1") if fields else ""
            if chosen not in self._offered:
                return self._refuse(socket, "the client chose a mechanism that was not offered")
            if chosen == _EXTERNAL:
                return self._answer_external(socket, fields[1] if len(fields) > 1 else None)
            self._scram = chosen if chosen in scram_decoy.DIGESTS else ""
            fields = fields[1:]
        if self._cyrus is None:
            return proton.Condition(FRAMING_ERROR, "a SASL frame out of order")
        message = fields[0] if fields else None
        if self._decoyed:
            return self._refuse(socket, _UNPROVEN)
        if self._scram and message:
            return self._answer_scram(socket, self._cyrus, frame, message)
        return self._ask_cyrus(socket, self._cyrus, frame)

    def _answer_external(self, socket: asyncio.Transport, authority: bytes | None) -> proton.Condition | None:
        if authority and authority != self._subject.encode():
            return self._refuse(socket, "the client asks for the authority of another name")
        self.login = Login(_EXTERNAL, self._subject)
        socket.write(frames.outcome(proton.SASL.OK))
        return None

    def _answer_scram(
        self, socket: asyncio.Transport, cyrus: proton.Transport, frame: bytes, message: bytes
    ) -> proton.Condition | None:
        """Answer the first message of SCRAM."""
        mechanism, self._scram = self._scram, ""
        if not scram_decoy.is_usual(message):
            return self._refuse(socket, "the first message of SCRAM is not of the usual form")
        answer, layer = _exchange(cyrus, frame), proton.SASL(cyrus)
        self._decoyed = layer.outcome is not None
        if self._decoyed:
            decoy = scram_decoy.challenge(mechanism, message, self._server.secret)
            answer = frames.challenge(decoy)
        socket.write(answer)
        return None

    def _ask_cyrus(
        self, socket: asyncio.Transport, cyrus: proton.Transport, frame: bytes
    ) -> proton.Condition | None:
        answer, layer = _exchange(cyrus, frame), proton.SASL(cyrus)
        if layer.outcome is None and cyrus.capacity() > 0:
            socket.write(answer)
            return None
        if layer.outcome != proton.SASL.OK:
            return self._refuse(socket, _UNPROVEN, layer.outcome)
        try:
            user = layer.user or ""
        except UnicodeDecodeError:
            return self._refuse(socket, "the client's name is not UTF-8")
        if layer.authorization not in (None, user):
            return self._refuse(socket, "the client asks for the authority of another name")
        if "@" in user and not self._server.realms:
            return self._refuse(socket, "the client's name has a realm")
        self.login = Login(layer.mech, user)
        socket.write(answer)
        return None

    def _refuse(self, socket: asyncio.Transport, why: str, code: int | None = None) -> proton.Condition:
        """Send the outcome, and end the connection: the client must learn that a retry is useless."""
        socket.write(frames.outcome(code or proton.SASL.AUTH))
        socket.close()
        return proton.Condition(UNAUTHORIZED, why)


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


def _offer(answer: bytes) -> tuple[str, ...]:
    """Return the mechanisms in what Cyrus answers to a client's header."""
    frame = answer[_HEADER:]
    if len(frame) <= _HEADER:
        return ()
    try:
        _, fields = frames.read_of_server(frame[4 * frame[4] :])
        return frames.names(fields[0])
    except (ValueError, IndexError):
        return ()


def _exchange(transport: proton.Transport, data: bytes) -> bytes:
    """Give proton bytes, and return its output for the client; after an error it accepts none."""
    with contextlib.suppress(proton.TransportException, OverflowError):
        transport.push(data)
    answer = b""
    while (size := transport.pending()) > 0:
        answer += bytes(transport.peek(size) or b"")
        transport.pop(size)
    return answer
