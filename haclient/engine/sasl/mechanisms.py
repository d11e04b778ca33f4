"""The SASL mechanisms of a client: their order of choice, and their messages.

Rules
-----
* ``PREFERRED`` is the order of choice.  A mechanism that keeps the password secret comes before one that
  proves less or reveals it.
* Without TLS a client sends a password or a token only if the application allows it.  EXTERNAL needs TLS
  with a certificate.
* A token goes by OAUTHBEARER or XOAUTH2, as Azure's MSSBCBS by the node ``$cbs`` (``core.attach.claims``),
  or as the password of PLAIN where the broker offers none of them, as RabbitMQ.  ANONYMOUS with a token means
  ``$cbs`` too, if the application names it.
* GSSAPI is used only if the application names it, and comes after SCRAM.
* SCRAM ends only after the server has proved that it knows the password: a listener at a member's address
  would otherwise pass for the primary.
* Inside TLS, SCRAM with channel binding comes before SCRAM without.  If it is not offered, the client sends
  the flag ``n``, not RFC 5802's ``y``, which Qpid Broker-J refuses.  So a peer in between can remove the
  offer, unless the application names SCRAM with channel binding alone.
* A server-first-message of SCRAM with fewer than ``FEWEST_ITERATIONS`` is not answered.  The answer is
  computed from the password: the fewer iterations, the more passwords an eavesdropper can try in a second.
  One with more than ``MOST_ITERATIONS`` is not answered either: computing them blocks the event loop.

Sources: RFC 4505 (ANONYMOUS), RFC 4616 (PLAIN), RFC 4422, appendix A (EXTERNAL), RFC 5802 (SCRAM; section 6:
the flag), RFC 7677, section 4 (the fewest iterations), RFC 7628 (OAUTHBEARER); Google's "OAuth 2.0 Mechanism"
(XOAUTH2).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from proton import SASL

from haclient.engine.sasl import kerberos
from haclient.engine.sasl.channel_binding import TYPE, bound
from haclient.engine.sasl.kerberos import KERBEROS
from haclient.engine.sasl.mechanism import Mechanism, RefusedChallenge
from haclient.engine.settings import Settings
from haclient.error_catalog.base import HaclientError, brief

UNPROVEN = "the peer did not prove that it knows the password"
WRONG_ITERATIONS = "the peer asks for a number of SCRAM iterations that this client refuses"
INTERCEPTED = "the TLS connection of this client does not end at the broker"
_OTHER_CHANNEL = b"e=channel-bindings-dont-match"  # RFC 5802, section 7
FEWEST_ITERATIONS = 4096
# Some 50 ms of the event loop, and the most of Cyrus SASL.
MOST_ITERATIONS = 0x10000
_DIGITS = len(str(MOST_ITERATIONS))
_QUOTED = 20
SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
BEARER = ("OAUTHBEARER", "XOAUTH2")
CLAIMS = "MSSBCBS"
"""Azure's name for ANONYMOUS with a token that is put into the node ``$cbs`` later."""
BOUND = bound(SCRAM)
WITH_PASSWORD = (*BOUND, *SCRAM, "PLAIN")
_WITH_TOKEN = (*BEARER, CLAIMS, "PLAIN")
PREFERRED = ("EXTERNAL", *BEARER, CLAIMS, *BOUND, *SCRAM, KERBEROS, "PLAIN", "ANONYMOUS")
"""The mechanisms of a client, in its order of choice."""


class _OneMessage:
    """A mechanism that is one message of the client."""

    proved = False
    refusal = ""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes:
        raise RefusedChallenge("the peer sent a challenge, which this mechanism does not have")

    def end(self, additional: bytes) -> None:
        """Accept any data: the mechanism has none."""


class _Bearer:
    """A mechanism that is one message with a token.  The server may answer with the reason of a refusal.

    :param acknowledgement: the answer to that reason.
    """

    proved = False

    def __init__(self, message: bytes, acknowledgement: bytes, token: str) -> None:
        self.refusal = ""
        self._message, self._acknowledgement, self._token = message, acknowledgement, token

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes:
        if self.refusal:
            raise RefusedChallenge("the peer sent a second reason for its refusal", SASL.AUTH)
        self.refusal = _reason(challenge, self._token) or "no reason given"
        return self._acknowledgement

    def end(self, additional: bytes) -> None:
        if self.refusal:
            raise RefusedChallenge("the peer accepted a token after it had refused it")


def _reason(challenge: bytes, token: str) -> str:
    """Return the texts in a refusal of a token, without the token (RFC 7628, section 3.2.2)."""
    text = challenge.decode(errors="backslashreplace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    keys = ("status", "error", "error_description", "scope")
    known = [found.get(key) for key in keys] if isinstance(found, dict) else []
    texts = ", ".join(each for each in known if isinstance(each, str) and each)
    # A text that is no such object may have the token in an encoding of its own.
    shown = texts or ("" if isinstance(found, dict | list) else text)
    return brief(shown.replace(token, "***"))


class _Scram:
    """SCRAM, by the library scramp.

    :param binding: the channel binding, for a mechanism with it.
    """

    refusal = ""

    def __init__(self, name: str, user: str, password: str, binding: bytes | None) -> None:
        import scramp  # noqa: PLC0415 - loads parsers of certificates, for this mechanism alone

        self.proved = False
        self._error = scramp.ScramException
        self._awaits_first = True
        channel = (TYPE, binding) if name in BOUND else None
        self._client: Any = scramp.ScramClient([name], "name", "password", channel)
        # As they are: servers on Cyrus SASL do not prepare them by SASLprep, which refuses emoji.
        self._client.username.username, self._client.password.password = user, password

    def first(self) -> bytes:
        message: str = self._client.get_client_first()
        return message.encode()

    def answer(self, challenge: bytes) -> bytes:
        if challenge == _OTHER_CHANNEL:
            raise RefusedChallenge(f"{INTERCEPTED}: the broker has another certificate")
        if challenge.startswith(b"e="):
            raise RefusedChallenge("Authentication failed", SASL.AUTH)
        if not self._awaits_first:
            self._check(challenge)
            return b""
        self._awaits_first = False
        if wrong := _wrong_iterations(challenge):
            raise RefusedChallenge(wrong)
        try:
            self._client.set_server_first(challenge.decode())
            final: str = self._client.get_client_final()
        except (self._error, ValueError) as error:
            raise RefusedChallenge(f"{UNPROVEN}: {error}") from None
        return final.encode()

    def end(self, additional: bytes) -> None:
        # Servers on proton-j, as Artemis, send their proof in the outcome.
        if not self.proved:
            self._check(additional)

    def _check(self, proof: bytes) -> None:
        if self.proved or self._awaits_first:
            raise RefusedChallenge(UNPROVEN)
        try:
            self._client.set_server_final(proof.decode())
        except (self._error, ValueError):
            raise RefusedChallenge(UNPROVEN) from None
        self.proved = True


def _wrong_iterations(message: bytes) -> str:
    """Return the error in the iteration count of a server-first-message, at any position; empty if none."""
    for count in (each[2:] for each in message.split(b",") if each.startswith(b"i=")):
        number = int(count) if count.isdigit() and len(count) <= _DIGITS else 0
        if not FEWEST_ITERATIONS <= number <= MOST_ITERATIONS:
            asked = ascii(count[:_QUOTED].decode("latin-1"))
            return f"{WRONG_ITERATIONS}: {asked}; it takes {FEWEST_ITERATIONS:,} to {MOST_ITERATIONS:,}"
    return ""


class SaslUnavailableError(HaclientError, RuntimeError):
    """The application asks for a mechanism that is not available here."""

    code = "sasl-unavailable"
    connection_usable = False
    safe_to_retry = False


def check_available(named: tuple[str, ...]) -> None:
    """Raise ``SaslUnavailableError`` if a client has none of the mechanisms."""
    known = PREFERRED if kerberos.is_available() else tuple(each for each in PREFERRED if each != KERBEROS)
    if named and not set(named).intersection(known):
        if KERBEROS in named:
            from haclient.version import install_extra  # noqa: PLC0415 - for this error alone

            raise SaslUnavailableError(f"SASL {KERBEROS} needs gssapi: {install_extra('kerberos')}")
        import difflib  # noqa: PLC0415 - for this error alone

        near = [each for name in named for each in difflib.get_close_matches(name, known, n=1)]
        meant = f"; did you mean {' '.join(near)}?" if near else ""
        raise SaslUnavailableError(f"SASL {' '.join(named)}: this client has {' '.join(known)}{meant}")


async def prepared(settings: Settings) -> Settings:
    """Return a client's settings with the beginning of what takes long: see ``kerberos``."""
    if KERBEROS not in settings.mechanisms or not kerberos.is_available():
        return settings
    begun = await kerberos.begin(settings.tls_name or settings.hostname or "", settings.user)
    return replace(settings, kerberos=begun)


def usable(settings: Settings, *, tls: bool = False) -> tuple[str, ...]:
    """Return the mechanisms that a client with these settings may use, in its order of choice.

    :param tls: whether the connection has TLS.
    """
    has_token = settings.bearer
    is_bearer = has_token and " " not in (settings.password or "")  # RFC 6750, section 2.1
    has_password = settings.user is not None and not has_token
    usual = _WITH_TOKEN if has_token else WITH_PASSWORD if has_password else ("ANONYMOUS",)
    allowed = settings.mechanisms or usual
    possible = {
        **dict.fromkeys(BOUND, has_password and tls),
        **dict.fromkeys(SCRAM, has_password),
        **dict.fromkeys(BEARER, is_bearer and settings.plaintext),
        CLAIMS: has_token and settings.plaintext,
        KERBEROS: settings.kerberos is not None,
        "EXTERNAL": settings.shows_certificate,
        "PLAIN": (has_password or has_token) and settings.plaintext,
        "ANONYMOUS": settings.plaintext or not has_token,
    }
    return tuple(name for name in PREFERRED if name in allowed and possible[name])


def chosen(name: str, settings: Settings, binding: bytes | None = None) -> Mechanism:
    """Return the client's part of a mechanism.

    :param binding: the channel binding; ``None`` if the client may use none.
    """
    user, password = settings.user or "", settings.password or ""
    if name == "PLAIN":
        return _OneMessage(b"\0" + user.encode() + b"\0" + password.encode())
    if name in (*BOUND, *SCRAM):
        return _Scram(name, user, password, binding)
    if name in BEARER:
        return _bearer(name, user, password)
    if name == KERBEROS:
        assert settings.kerberos is not None, "it is usable"
        return settings.kerberos
    return _OneMessage(b"" if name == "EXTERNAL" else b"anonymous")


def _bearer(name: str, user: str, token: str) -> Mechanism:
    proof = b"auth=Bearer " + token.encode() + b"\1\1"
    if name == "XOAUTH2":
        return _Bearer(b"user=" + user.encode() + b"\1" + proof, b"", token)
    authority = f"a={user.replace('=', '=3D').replace(',', '=2C')}" if user else ""
    return _Bearer(f"n,{authority},\1".encode() + proof, b"\1", token)
