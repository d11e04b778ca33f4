"""The SASL mechanisms with which members and commands may use a password against another member.

Rules
-----
* Whoever listens at a member's address may offer any mechanism, so the offer decides nothing: a password goes
  out by SCRAM-SHA-256, which shows none of it, or by PLAIN inside TLS that was verified against ``tls_ca``.
* Without ``tls_ca`` there is no PLAIN: any host of the internet has a certificate of the system's
  authorities.

Sources: RFC 5802 and RFC 7677 (SCRAM), RFC 4616, section 4 (PLAIN asks for TLS).
"""

from __future__ import annotations

import ssl
from typing import TypedDict

from haclient.cluster_url.options import Options

SCRAM = "SCRAM-SHA-256"
# For the errors of a peer that does not offer what is asked for.
REQUIREMENT = f"a password is sent by {SCRAM} only, or by PLAIN inside TLS that --tls-ca verifies"
_PLUGIN = f"Cyrus SASL has no plugin for {SCRAM} here: install libsasl2-modules (RPM: cyrus-sasl-scram)"


class PasswordOptions(TypedDict):
    """Options of a connection, by their names."""

    sasl_mechanisms: tuple[str, ...]
    sasl_plaintext: bool


def password_mechanisms(*, verified_by_ca: bool) -> tuple[str, ...]:
    """The mechanisms to allow, the better one first.

    :param verified_by_ca: whether the peer's certificate and name are verified against a given authority.
    """
    return (SCRAM, "PLAIN") if verified_by_ca else (SCRAM,)


def password_options(options: Options, *, tls_ca: bool = False) -> PasswordOptions:
    """The connection options that keep a password from strangers; they override those of the URL.

    :param options: those of the URL.
    :param tls_ca: whether an authority is given besides.
    """
    verified = (tls_ca or options.tls_ca is not None) and options.tls_verify
    return {"sasl_mechanisms": password_mechanisms(verified_by_ca=verified), "sasl_plaintext": False}


def is_verified_by_ca(context: ssl.SSLContext | None) -> bool:
    """Whether a client context verifies certificate and name; ``None`` stands for no given authority."""
    return context is not None and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def no_mechanism_text(offered: tuple[str, ...]) -> str:
    """Why none of the allowed mechanisms was used, and what to do.

    :param offered: what the peer offers; empty if that is unknown.
    """
    if SCRAM in offered:
        return _PLUGIN
    return f"the peer offers {' '.join(offered) or 'no SASL mechanism'}: {REQUIREMENT}"
