"""The server's part of each SASL mechanism.

Rules
-----
* EXTERNAL has the name of the client's certificate, if TLS has verified it.
* A client that asks for the authority of another name is refused.
* Every name gets the same answers for the same work, whether or not the user exists: only its proof fails.
* A first message of SCRAM without the usual form is refused before the users are asked.

Sources: RFC 4422, section 2 (identities) and appendix A (EXTERNAL), RFC 4505 (ANONYMOUS), RFC 4616 (PLAIN),
RFC 5802, section 7 (SCRAM).
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Any, Protocol

from haclient.engine.sasl.users import DIGESTS, Users, derive

UNPROVEN = "the client did not prove who it is"
OTHER_AUTHORITY = "the client asks for the authority of another name"
_PLAIN_FIELDS = 3
# No channel binding, which is not offered, no authority, which scramp refuses, and no extensions.
_CLIENT_FIRST = re.compile(rb"[ny],,n=((?:[^,=\0]|=2C|=3D)+),r=[!-+\--~]{1,256}")
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Login:
    """The log-in of a client.

    :param user: its name; meaningless for ANONYMOUS.
    """

    mechanism: str
    user: str


class RefusedLogin(Exception):
    """The client does not log in.

    :ivar code: the code of the outcome; ``None`` stands for wrong credentials.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class ServerMechanism(Protocol):
    """The server's part of one mechanism."""

    def answer(self, message: bytes | None) -> bytes | Login:
        """Return the challenge to the client's message, or its log-in.

        :param message: ``None`` if the client has chosen the mechanism without a message.
        :raises RefusedLogin: if the client is refused.
        """


class Anonymous:
    """A log-in without a name."""

    def answer(self, _message: bytes | None) -> Login:
        """Accept any message."""
        return Login("ANONYMOUS", "anonymous")


class External:
    """A log-in by the certificate of TLS.

    :param subject: the certificate's name.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def answer(self, message: bytes | None) -> Login:
        """Accept the authority of the certificate's name."""
        if message and message != self._subject.encode():
            raise RefusedLogin(OTHER_AUTHORITY)
        return Login("EXTERNAL", self._subject)


class Plain:
    """A log-in by a password, checked against the keys of the user's strongest mechanism."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def answer(self, message: bytes | None) -> bytes | Login:
        """Check the message."""
        if message is None:
            return b""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise RefusedLogin("the client's message is not UTF-8") from None
        if len(parts) != _PLAIN_FIELDS:
            raise RefusedLogin("the message of PLAIN is not of its form")
        authority, name, password = parts
        mechanism = self._users.mechanisms[0]
        keys = self._users.keys(mechanism, name)
        given = derive(mechanism, password, keys.salt, keys.iterations)
        if not hmac.compare_digest(given.stored_key, keys.stored_key):
            raise RefusedLogin(UNPROVEN)
        if authority not in ("", name):
            raise RefusedLogin(OTHER_AUTHORITY)
        return Login("PLAIN", name)


class Scram:
    """A log-in by a proof of the password, by the library scramp."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._mechanism, self._users = mechanism, users
        self._name = ""
        self._server: Any = None
        self._proved = False

    def answer(self, message: bytes | None) -> bytes | Login:
        """Answer the first message, the proof, and the message after it."""
        if message is None:
            return b""
        if self._proved:
            return Login(self._mechanism, self._name)
        if self._server is None:
            return self._begin(message)
        import scramp  # noqa: PLC0415 - loaded already

        try:
            self._server.set_client_final(message.decode())
            final: str = self._server.get_server_final()
        except (scramp.ScramException, ValueError):
            raise RefusedLogin(UNPROVEN) from None
        self._proved = True
        return final.encode()

    def _begin(self, message: bytes) -> bytes:
        import scramp  # noqa: PLC0415 - loads parsers of certificates, for this mechanism alone

        if self._mechanism not in self._users.mechanisms:
            raise RefusedLogin("the users have no keys for this mechanism any more")
        found = _CLIENT_FIRST.fullmatch(message) if len(message) <= _LONGEST else None
        if found is None:
            raise RefusedLogin("the first message of SCRAM is not of the usual form")
        try:
            self._name = found[1].replace(b"=2C", b",").replace(b"=3D", b"=").decode()
            keys = self._users.keys(self._mechanism, self._name)
            known = keys.salt, keys.stored_key, keys.server_key, keys.iterations
            self._server = scramp.ScramMechanism(self._mechanism).make_server(lambda _prepared: known)
            self._server.set_client_first(message.decode())
            first: str = self._server.get_server_first()
        except (scramp.ScramException, ValueError):
            raise RefusedLogin("the name of the client is not one that SASL allows") from None
        return first.encode()


def of_name(name: str, users: Users | None, subject: str) -> ServerMechanism:
    """Return the server's part of a mechanism that it offers."""
    if name == "EXTERNAL":
        return External(subject)
    if name == "ANONYMOUS":
        return Anonymous()
    assert users is not None, "only users have the others"
    return Scram(name, users) if name in DIGESTS else Plain(users)
