"""TLS for both sides.

The client uses asyncio's TLS.  It checks IP addresses in certificates as well as names, has clear error
messages, and accepts the application's own ``ssl.SSLContext``.  A server uses the same OpenSSL inside the
engine (``wire.server_tls``).

Sources: RFC 6125 (which name is checked), AMQP 1.0 part 5, section 5.2.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: trusted authorities, own certificate and key.  No ``ca`` trusts the system's authorities."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True


class TlsFileError(Exception):
    """A file cannot be read, or does not contain the expected PEM data.

    :ivar field: the field of ``TlsFiles`` that names the file.
    """

    def __init__(self, field: str, path: str | None, reason: OSError) -> None:
        super().__init__(f"{path}: {reason.strerror or reason}")
        self.field = field


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a client context that verifies chain and name unless ``verify`` is off.

    :raises TlsFileError: when a file cannot be read or is not PEM.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError as error:
        raise TlsFileError("ca", files.ca, error) from error
    if files.certificate is not None:
        try:
            # An empty password: without one OpenSSL would ask on the terminal for the password of an
            # encrypted key.
            context.load_cert_chain(files.certificate, files.key, password="")
        except OSError as error:
            raise TlsFileError("certificate", files.certificate, error) from error
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def empty_server_context() -> ssl.SSLContext:
    """Return a server context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context; with ``ca`` each client must show a certificate of that authority.

    :raises TlsFileError: when a file cannot be read or is not PEM.
    """
    context = empty_server_context()
    try:
        context.load_cert_chain(files.certificate or "", files.key, password="")
    except OSError as error:
        raise TlsFileError("certificate", files.certificate, error) from error
    if files.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=files.ca)
        except OSError as error:
            raise TlsFileError("ca", files.ca, error) from error
    return context


def own_certificate(files: TlsFiles) -> bytes | None:
    """Return the certificate that a server with these files shows, in DER; ``None`` if it is not found.

    Python cannot ask OpenSSL for it.  As OpenSSL does, this function takes the first one in the file.

    :raises OSError: if the file cannot be read.
    """
    with open(files.certificate or "", encoding="latin-1") as file:  # noqa: PTH123 - pathlib loads slowly
        found = _CERTIFICATE.search(file.read())
    return None if found is None else ssl.PEM_cert_to_DER_cert(found[0])
