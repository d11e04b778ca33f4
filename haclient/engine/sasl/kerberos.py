"""Kerberos, by the library gssapi: the mechanism GSSAPI of a client.

Rules
-----
* The library may ask the KDC for a ticket, and the DNS for names.  That takes 20 ms, but 27 s if the KDC is
  silent and 40 s if two are (measured, MIT Kerberos 1.20).  So a thread makes the first message before the
  client dials; the later ones need no network.
* The server must prove who it is.
* The client refuses any security layer: TLS encrypts.  It asks for no other identity than its ticket's.

Sources: RFC 4752, section 3.1 (the client's side) and 3.3 (the last message); RFC 2743.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from proton import SASL

from haclient.engine.sasl.daemon_threads import DaemonThreads
from haclient.engine.sasl.mechanism import RefusedChallenge
from haclient.error_catalog.base import brief

KERBEROS = "GSSAPI"
UNPROVEN_SERVER = "the peer did not prove who it is"
# RFC 4752, section 3.3: a bit mask of layers, and the largest message in three bytes.
_NO_LAYER, _LAYERS = 1, 4
_MUTUAL = 2  # RFC 2744: GSS_C_MUTUAL_FLAG
# MIT's "Cannot contact any KDC": GSS-API passes its error codes as unsigned numbers.
_KDC_UNREACHABLE = -1765328228 & 0xFFFFFFFF

_THREADS = DaemonThreads("haclient kerberos")


def is_available() -> bool:
    """Return whether the library is there."""
    return find_spec("gssapi") is not None


class Gssapi:
    """The exchange with one server.  Making it may take long: see ``begin``.

    :param host: the server's name: its service is ``amqp@host``.
    :param user: the user whose ticket is needed; ``None`` takes the default one.
    """

    refusal = ""

    def __init__(self, host: str, user: str | None) -> None:
        from gssapi.raw.misc import GSSError  # noqa: PLC0415 - optional

        self.proved = self._answered = False
        self._error = GSSError
        self._refused: RefusedChallenge | None = None
        self._first = b""
        service = f"amqp@{host}"
        try:
            self._context = _context(service, user)
            self._first = self._context.step() or b""
        except GSSError as error:
            code = SASL.TEMP if error.min_code == _KDC_UNREACHABLE else None
            self._refused = RefusedChallenge(f"no ticket for {service}: {_text(error)}", code)

    def first(self) -> bytes:
        """Return the first token."""
        if self._refused is not None:
            raise self._refused
        return self._first

    def answer(self, challenge: bytes) -> bytes:
        """Return the next token, or after the last one the choice of no security layer."""
        try:
            return self._layer(challenge) if self.proved else self._step(challenge)
        except self._error as error:
            raise RefusedChallenge(f"{UNPROVEN_SERVER}: {_text(error)}") from None

    def end(self, additional: bytes) -> None:
        """Accept the end after the choice of the layer alone."""
        if not self._answered:
            raise RefusedChallenge(f"{UNPROVEN_SERVER}: it ended the exchange too early")

    def _step(self, challenge: bytes) -> bytes:
        token: bytes = self._context.step(challenge) or b""
        if self._context.complete:
            if not self._context.actual_flags & _MUTUAL:
                raise RefusedChallenge(UNPROVEN_SERVER)
            self.proved = True
        return token

    def _layer(self, challenge: bytes) -> bytes:
        if self._answered:
            raise RefusedChallenge("the peer sent a message after the last one of GSSAPI")
        offered: bytes = self._context.unwrap(challenge).message
        if len(offered) != _LAYERS or not offered[0] & _NO_LAYER:
            raise RefusedChallenge(
                "the peer requires a security layer of GSSAPI, which this client does not have"
            )
        self._answered = True
        chosen: bytes = self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), encrypt=False).message
        return chosen


async def begin(host: str, user: str | None) -> Gssapi:
    """Begin an exchange in a thread, which no cancelled caller and no end of the program waits for."""
    return await _THREADS.run(lambda: Gssapi(host, user))


def _context(service: str, user: str | None) -> Any:
    import gssapi  # noqa: PLC0415 - optional

    kinds, flags = gssapi.NameType, gssapi.RequirementFlag
    own = None
    if user is not None:
        own = gssapi.Credentials(name=gssapi.Name(user, kinds.user), usage="initiate")
    return gssapi.SecurityContext(
        name=gssapi.Name(service, kinds.hostbased_service),
        creds=own,
        flags=_MUTUAL | flags.integrity | flags.out_of_sequence_detection,
        mech=gssapi.MechType.kerberos,
        usage="initiate",
    )


def _text(error: Any) -> str:
    """Return the mechanism's text of an error, or else the general one of GSS-API."""
    major, minor = error.maj_code, error.min_code
    texts = error.get_all_statuses(minor, False) if minor else error.get_all_statuses(major, True)
    return brief("; ".join(map(str, texts)))
