"""The SASL mechanisms by which members and commands may send a password to another member.

Rules
-----
* An attacker that listens at a member's address may offer any mechanism, so the offer decides nothing. A
  password is sent by SCRAM-SHA-256, which reveals none of it, or by PLAIN inside TLS that was verified
  against ``tls_ca``.
* Without ``tls_ca`` there is no PLAIN: any internet host can have a certificate of the system's authorities.

Sources: RFC 5802 and RFC 7677 (SCRAM), RFC 4616, section 4 (PLAIN asks for TLS).
"""

from __future__ import annotations

import ssl
from typing import TypedDict

from haclient.cluster_url.options import Options

SCRAM = "SCRAM-SHA-256"
# For errors about a peer that offers none of the allowed mechanisms.
REQUIREMENT = f"a password is sent by {SCRAM} only, or by PLAIN inside TLS that --tls-ca verifies"


class PasswordOptions(TypedDict):
    """Options of a connection, by name."""

    sasl_mechanisms: tuple[str, ...]
    sasl_plaintext: bool


def password_mechanisms(*, verified_by_ca: bool) -> tuple[str, ...]:
    """Return the allowed mechanisms, the better one first.

    :param verified_by_ca: true if the peer's certificate and name are verified against a given authority.
    """
    return (SCRAM, "PLAIN") if verified_by_ca else (SCRAM,)


def password_options(options: Options, *, tls_ca: bool = False) -> PasswordOptions:
    """Return connection options that protect a password; they override the URL's.

    :param options: the options of the URL.
    :param tls_ca: true if an authority is given in addition.
    """
    verified = (tls_ca or options.tls_ca is not None) and options.tls_verify
    return {"sasl_mechanisms": password_mechanisms(verified_by_ca=verified), "sasl_plaintext": False}


def is_verified_by_ca(context: ssl.SSLContext | None) -> bool:
    """Return whether a client context verifies certificate and name; ``None`` means no given authority."""
    return context is not None and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def no_mechanism_text(offered: tuple[str, ...]) -> str:
    """Return the reason why no allowed mechanism was used, and the remedy.

    :param offered: mechanisms that the peer offers; empty if unknown.
    """
    return f"the peer offers {' '.join(offered) or 'no SASL mechanism'}: {REQUIREMENT}"
