"""proton's transport, reporting a log-in and TLS that proton has not seen."""

from __future__ import annotations

import contextlib
import hashlib
from ssl import SSLObject
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import proton

from haclient.engine.sasl import certificate_name

if TYPE_CHECKING:
    import asyncio


class Negotiation(Protocol):
    """Either side of SASL."""

    @property
    def mechanism(self) -> str | None:
        """Return the mechanism that the client chose; ``None`` before that."""

    @property
    def outcome(self) -> int | None:
        """Return the code of the outcome; ``None`` before it."""

    @property
    def user(self) -> str | None:
        """Return the client's name; ``None`` before an OK outcome."""


class _Sasl(SimpleNamespace):
    """The state of SASL, with the codes of ``proton.SASL``."""

    OK, AUTH, SYS, PERM, TEMP = range(5)  # AMQP 1.0 part 5, section 5.3.3.6


_SSL: Any = proton.SSL


class _Tls(_SSL):  # type: ignore[misc]  # proton says that there is a certificate always
    """The facts of ``proton.SSL``, from Python's ``ssl``."""

    def __new__(cls, _tls: SSLObject | None) -> Self:
        """Make an object without proton's TLS."""
        return object.__new__(cls)

    def __init__(self, tls: SSLObject | None) -> None:
        self._tls = tls

    def cipher_name(self) -> str | None:
        """Return the cipher in use, as OpenSSL names it; ``None`` without TLS."""
        cipher = None if self._tls is None else self._tls.cipher()
        return None if cipher is None else cipher[0]

    def protocol_name(self) -> str | None:
        """Return the version of TLS in use, such as ``TLSv1.3``; ``None`` without TLS."""
        return None if self._tls is None else self._tls.version()

    @property
    def remote_subject(self) -> str | None:
        """Return the subject of the peer's certificate (RFC 2253); ``None`` without one."""
        with contextlib.suppress(ValueError):
            return certificate_name.subject(self._certificate) if self._certificate else None
        return None

    def get_cert_subject(self) -> str | None:
        """Return the subject of the peer's certificate (RFC 2253); ``None`` without one."""
        return self.remote_subject

    def get_cert_subject_subfield(self, subfield_name: int) -> str | None:
        """Return one attribute of that subject; ``None`` without it."""
        names = {
            self.CERT_COUNTRY_NAME: "C",
            self.CERT_STATE_OR_PROVINCE: "ST",
            self.CERT_CITY_OR_LOCALITY: "L",
            self.CERT_ORGANIZATION_NAME: "O",
            self.CERT_ORGANIZATION_UNIT: "OU",
            self.CERT_COMMON_NAME: "CN",
        }
        found, name = self._certificate, names.get(subfield_name)
        if not found or name is None:
            return None
        with contextlib.suppress(ValueError):
            return next((value for each, value in certificate_name.attributes(found) if each == name), None)
        return None

    def get_cert_fingerprint(self, fingerprint_length: int, digest_name: int) -> str | None:
        """Return the hash of the peer's certificate in hexadecimal; ``None`` without one."""
        names = {self.SHA1: "sha1", self.SHA256: "sha256", self.SHA512: "sha512", self.MD5: "md5"}
        found, name = self._certificate, names.get(digest_name)
        if not found or name is None:
            return None
        digest = hashlib.new(name, found, usedforsecurity=False).hexdigest()
        return digest if fingerprint_length > len(digest) else None

    @property
    def peer_hostname(self) -> str | None:
        """Return the name that the client asked for; ``None`` without one."""
        return None if self._tls is None else self._tls.server_hostname

    def resume_status(self) -> int:
        """Return whether the session is a resumed one."""
        if self._tls is None or self._tls.session_reused is None:
            return int(self.RESUME_UNKNOWN)
        return int(self.RESUME_REUSED if self._tls.session_reused else self.RESUME_NEW)

    @property
    def _certificate(self) -> bytes | None:
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)


class ReportingTransport(proton.Transport):
    """proton's transport, as handlers see it.

    :ivar negotiation: SASL, unless it is proton's.
    :ivar socket: the connection, with its TLS; ``None`` before there is one.
    """

    negotiation: Negotiation | None = None
    socket: asyncio.Transport | None = None

    @property
    def user(self) -> str | None:
        """Return the name of the client; ``None`` before it has authenticated."""
        found: str | None = super().user if self.negotiation is None else self.negotiation.user
        return found

    @property
    def authenticated(self) -> bool:
        """Return whether the client has authenticated."""
        if self.negotiation is None:
            return bool(super().authenticated)
        return bool(self.negotiation.outcome == proton.SASL.OK)

    @property
    def encrypted(self) -> bool:
        """Return whether the connection has TLS."""
        return self._tls_object is not None

    def sasl(self) -> Any:
        """Return the state of SASL: ``user``, ``authorization``, ``mech`` and ``outcome``."""
        sasl = self.negotiation
        if sasl is None:
            return super().sasl()
        return _Sasl(user=sasl.user, authorization=sasl.user, mech=sasl.mechanism, outcome=sasl.outcome)

    def ssl(self, domain: Any = None, session_details: Any = None) -> proton.SSL:
        """Return the facts of TLS.

        :raises proton.SSLException: with a domain, which ``connect`` and ``listen`` take.
        """
        if domain is not None or session_details is not None:
            raise proton.SSLException("give the domain to connect or listen: the connection has begun")
        return _Tls(self._tls_object)

    @property
    def _tls_object(self) -> SSLObject | None:
        """Return the TLS after its handshake."""
        found = None if self.socket is None else self.socket.get_extra_info("ssl_object")
        return cast("SSLObject", found) if found is not None and found.version() is not None else None
