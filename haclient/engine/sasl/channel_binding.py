"""The channel binding ``tls-server-end-point``: the hash of a server's certificate.

The ``-PLUS`` mechanisms of SCRAM include it in the client's proof.  So the proof is worth nothing at any
other TLS server, even at one with a trusted certificate.

Rules
-----
* The hash function is the one of the certificate's signature, and SHA-256 instead of MD5 and SHA-1.
* A certificate has no binding if its signature has no such function of its own, as with Ed25519.

Sources: RFC 5929, section 4.1; RFC 5802, section 6 (when it is used); RFC 8410, section 3 (Ed25519, Ed448).
"""

from __future__ import annotations

import asyncio
import contextlib

from haclient.engine.sasl import certificate_name

TYPE = "tls-server-end-point"
PLUS = "-PLUS"
# Ed25519 and Ed448.  The library takes SHA-512 for the first one.
_WITHOUT_HASH = frozenset({"1.3.101.112", "1.3.101.113"})


def bound(mechanisms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the variants with channel binding of these SCRAM mechanisms."""
    return tuple(name + PLUS for name in mechanisms)


def is_bound(mechanism: str) -> bool:
    """Return whether a mechanism has channel binding."""
    return mechanism.endswith(PLUS)


def of_certificate(certificate: bytes) -> bytes | None:
    """Return the binding of a certificate in DER; ``None`` if it has none."""
    import scramp  # noqa: PLC0415 - loads parsers of certificates, for SCRAM alone
    from scramp.core import CBindData  # noqa: PLC0415

    with contextlib.suppress(ValueError, scramp.ScramException):
        if certificate_name.signature_algorithm(certificate) not in _WITHOUT_HASH:
            return bytes(CBindData.from_der(certificate))
    return None


def of_server(socket: asyncio.Transport) -> bytes | None:
    """Return the binding of the server that a client's TLS has reached; ``None`` if it has none."""
    tls = socket.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    return None if certificate is None else of_certificate(certificate)
