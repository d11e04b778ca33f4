"""SASL by proton, and by Cyrus SASL if proton was built with it, for a drop-in application that listens.

Such an application has the users of the host's ``proton-server.conf``, as with proton.

Sources: AMQP 1.0 part 5, section 5.3; RFC 4422; proton's ``pn_sasl_*`` documentation.
"""

from __future__ import annotations

import contextlib

import proton
from proton import SASL

from haclient.engine.sasl import frames
from haclient.engine.sasl.server_mechanisms import OTHER_AUTHORITY, UNPROVEN, Login, RefusedLogin

_HEADER = len(frames.SASL_HEADER)


class CyrusServer:
    """proton's server side of SASL for one client, behind a transport of its own.

    :param encrypted: whether the connection has TLS: without it PLAIN is not offered, as with proton.
    :ivar offered: the mechanisms that the host's configuration allows.
    """

    def __init__(self, *, encrypted: bool) -> None:
        self._transport = proton.Transport(proton.Transport.SERVER)
        layer = SASL(self._transport)
        layer.config_name("proton-server")
        layer.allow_insecure_mechs = encrypted
        self._answers = frames.Incoming()
        self.offered = _offered(self._exchange(frames.SASL_HEADER))
        self._chosen = ""

    def choose(self, name: str) -> None:
        """Set the mechanism of the client's first message."""
        self._chosen = name

    def answer(self, message: bytes | None) -> bytes | Login:
        """Return the challenge to the client's message, or its log-in."""
        chosen, self._chosen = self._chosen, ""
        given = frames.init(chosen, message, None) if chosen else frames.response(message or b"")
        answers, layer = self._exchange(given), SASL(self._transport)
        if layer.outcome is None and self._transport.capacity() > 0 and answers:
            return frames.message(answers[0])
        if layer.outcome != SASL.OK:
            raise RefusedLogin(UNPROVEN, layer.outcome)
        try:
            user = layer.user or ""
        except UnicodeDecodeError:
            raise RefusedLogin("the client's name is not UTF-8") from None
        if layer.authorization not in (None, user):
            raise RefusedLogin(OTHER_AUTHORITY)
        return Login(layer.mech, user)

    def _exchange(self, data: bytes) -> list[bytes]:
        """Give proton bytes; return the fields of its answer.  After an error it accepts none."""
        with contextlib.suppress(proton.TransportException, OverflowError):
            self._transport.push(data)
        while (size := self._transport.pending()) > 0:
            self._answers.held += bytes(self._transport.peek(size) or b"")
            self._transport.pop(size)
        found: list[bytes] = []
        with contextlib.suppress(ValueError):
            while body := self._answers.next_frame():
                found = frames.read_of_server(body)[1]
        return found


def _offered(fields: list[bytes]) -> tuple[str, ...]:
    try:
        return frames.names(fields[0])
    except (ValueError, IndexError):
        return ()
