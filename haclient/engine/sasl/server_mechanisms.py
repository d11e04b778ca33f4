"""The server's part of each SASL mechanism.

Rules
-----
* EXTERNAL has the name of the client's certificate, if TLS has verified it.
* A client that asks for the authority of another name is refused.
* Every name gets the same answers for the same work, whether or not the user exists: only its proof fails.
* A token has its owner's name; the name beside it in PLAIN and XOAUTH2 is ignored.  A client of PLAIN with a
  JWT or Azure's signature as its password gives a token.
* A refused token gets the reason first, as JSON, and the outcome after the client's answer to it.
* A first message of SCRAM without the usual form is refused before the users are asked.
* A client whose channel binding is wrong gets SCRAM's error before the outcome: it is not about the user.

Sources: RFC 4422, section 2 (identities) and appendix A (EXTERNAL), RFC 4505 (ANONYMOUS), RFC 4616 (PLAIN),
RFC 5802, sections 6 and 7 (SCRAM), RFC 7628, section 3 (OAUTHBEARER); Google's "OAuth 2.0 Mechanism"
(XOAUTH2).
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, Protocol

from proton import SASL

from haclient.engine.sasl.channel_binding import PLUS, TYPE, is_bound
from haclient.engine.sasl.claims import SHARED_ACCESS
from haclient.engine.sasl.mechanisms import CLAIMS
from haclient.engine.sasl.users import DIGESTS, RefusedToken, Tokens, Users, derive
from haclient.engine.settings import SaslServer

UNPROVEN = "the client did not prove who it is"
OTHER_AUTHORITY = "the client asks for the authority of another name"
_PLAIN_FIELDS = 3
WRONG_CHANNEL = "the client's channel binding is not this connection's"
# No other channel binding, no authority, which scramp refuses, and no extensions.
_CLIENT_FIRST = re.compile(
    rb"([ny]|p=%b),,n=((?:[^,=\0]|=2C|=3D)+),r=[!-+\--~]{1,256}" % re.escape(TYPE.encode())
)
_LONGEST = 1024
_TOKEN = re.compile(rf"[\w-]+\.[\w-]+\.[\w-]+|{SHARED_ACCESS}.*", re.ASCII)
_AUTH = rb"auth=bearer +([!-~]+)\x01"
# An authority, if any, pairs of keys and values, and the token.
_BEARER = {
    "OAUTHBEARER": re.compile(
        rb"[ny],(?:a=([^,\0]*))?,\x01(?:[a-z]+=[^\x01]*\x01)*?" + _AUTH + rb".*", re.IGNORECASE | re.DOTALL
    ),
    "XOAUTH2": re.compile(rb"()user=[^\x01]*\x01" + _AUTH + rb"\x01", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Login:
    """The log-in of a client.

    :param user: its name; meaningless for ANONYMOUS.
    :param expires_at: when its token expires, in seconds since 1970; ``None`` if never.
    """

    mechanism: str
    user: str
    expires_at: float | None = None


class RefusedLogin(Exception):
    """The client does not log in.

    :ivar code: the code of the outcome; ``None`` stands for wrong credentials.
    :ivar challenge: the reason for the client, sent before the outcome; empty if there is none.
    """

    def __init__(self, text: str, code: int | None = None, challenge: bytes = b"") -> None:
        super().__init__(text)
        self.code, self.challenge = code, challenge


class ServerMechanism(Protocol):
    """The server's part of one mechanism."""

    def answer(self, message: bytes | None) -> bytes | Login:
        """Return the challenge to the client's message, or its log-in.

        :param message: ``None`` if the client has chosen the mechanism without a message.
        :raises RefusedLogin: if the client is refused.
        """


class Anonymous:
    """A log-in without a name."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism

    def answer(self, _message: bytes | None) -> Login:
        """Accept any message."""
        return Login(self._mechanism, "anonymous")


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
    """A log-in by a password, checked against the keys of the user's strongest mechanism, or by a token."""

    def __init__(self, users: Users | None, tokens: Tokens | None) -> None:
        self._users, self._tokens = users, tokens

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
        if self._tokens is not None and (self._users is None or _TOKEN.fullmatch(password)):
            return _of_token("PLAIN", self._tokens, password, authority)
        assert self._users is not None, "only users have passwords"
        mechanism = self._users.mechanisms[0]
        keys = self._users.keys(mechanism, name)
        given = derive(mechanism, password, keys.salt, keys.iterations)
        if not hmac.compare_digest(given.stored_key, keys.stored_key):
            raise RefusedLogin(UNPROVEN)
        if authority not in ("", name):
            raise RefusedLogin(OTHER_AUTHORITY)
        return Login("PLAIN", name)


class Bearer:
    """A log-in by a token."""

    def __init__(self, name: str, tokens: Tokens) -> None:
        self._name, self._tokens = name, tokens
        self._refused: RefusedLogin | None = None

    def answer(self, message: bytes | None) -> bytes | Login:
        """Check the message, and after a refusal the client's answer to the reason."""
        if self._refused is not None:
            raise self._refused
        if message is None:
            return b""
        found = _BEARER[self._name].fullmatch(message)
        if found is None:
            raise RefusedLogin(f"the message of {self._name} is not of its form")
        authority = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode(errors="replace")
        try:
            return _of_token(self._name, self._tokens, found[2].decode(), authority)
        except RefusedLogin as refused:
            self._refused = refused
            reason = {"status": "invalid_token", "error_description": str(refused)}
            return json.dumps(reason).encode()


def _of_token(mechanism: str, tokens: Tokens, token: str, authority: str) -> Login:
    try:
        owner = tokens.owner(token)
    except RefusedToken as refused:
        raise RefusedLogin(str(refused), SASL.TEMP if refused.is_temporary else None) from None
    if authority not in ("", owner.user):
        raise RefusedLogin(OTHER_AUTHORITY)
    return Login(mechanism, owner.user, owner.expires_at)


class Scram:
    """A log-in by a proof of the password, by the library scramp.

    :param binding: the channel binding if it is offered on this connection, also for a mechanism without.
    """

    def __init__(self, mechanism: str, users: Users, binding: bytes | None = None) -> None:
        self._mechanism, self._users, self._binding = mechanism, users, binding
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
        except (scramp.ScramException, ValueError) as error:
            raise _refusal(error, UNPROVEN) from None
        self._proved = True
        return final.encode()

    def _begin(self, message: bytes) -> bytes:
        import scramp  # noqa: PLC0415 - loads parsers of certificates, for this mechanism alone

        keyed = self._mechanism.removesuffix(PLUS)
        if keyed not in self._users.mechanisms:
            raise RefusedLogin("the users have no keys for this mechanism any more")
        found = _CLIENT_FIRST.fullmatch(message) if len(message) <= _LONGEST else None
        if found is None or found[1].startswith(b"p") != is_bound(self._mechanism):
            raise RefusedLogin("the first message of SCRAM is not of the usual form")
        try:
            self._name = found[2].replace(b"=2C", b",").replace(b"=3D", b"=").decode()
            keys = self._users.keys(keyed, self._name)
            known = keys.salt, keys.stored_key, keys.server_key, keys.iterations
            channel = None if self._binding is None else (TYPE, self._binding)
            mechanism = scramp.ScramMechanism(self._mechanism)
            self._server = mechanism.make_server(lambda _prepared: known, channel)
            self._server.set_client_first(message.decode())
            first: str = self._server.get_server_first()
        except (scramp.ScramException, ValueError) as error:
            raise _refusal(error, "the name of the client is not one that SASL allows") from None
        return first.encode()


def _refusal(error: Exception, text: str) -> RefusedLogin:
    """Return the refusal of a client, which learns the reason only if it is the channel binding."""
    reason = getattr(error, "server_error", None)
    if reason is None or "channel-binding" not in reason.value:
        return RefusedLogin(text)
    return RefusedLogin(WRONG_CHANNEL, challenge=b"e=" + reason.value.encode())


def of_name(name: str, server: SaslServer, subject: str, binding: bytes | None) -> ServerMechanism:
    """Return the server's part of a mechanism that it offers.

    :param subject: the name in the client's certificate.
    :param binding: the channel binding, if it offers that.
    """
    if name == "EXTERNAL":
        return External(subject)
    if name in ("ANONYMOUS", CLAIMS):
        return Anonymous(name)
    if name in _BEARER:
        assert server.tokens is not None, "only tokens have these"
        return Bearer(name, server.tokens)
    if name.removesuffix(PLUS) in DIGESTS:
        assert server.users is not None, "only users have keys"
        return Scram(name, server.users, binding)
    return Plain(server.users, server.tokens)
