"""SASL for both sides, and errors about mechanisms that this build lacks.

proton always has ANONYMOUS, EXTERNAL and (client side) PLAIN.  All others come from Cyrus SASL, if proton was
built with it: SCRAM, and on the server side everything but ANONYMOUS and EXTERNAL.

Sources: AMQP 1.0 part 5, section 5.3; RFC 4422; proton's ``pn_sasl_*`` documentation.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import proton
from proton import SASL, SSL

from haclient.engine import REBUILD
from haclient.engine.settings import SaslServer, Settings
from haclient.error_catalog.base import HaclientError
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from pathlib import Path

logger = get_logger("haclient")

WITHOUT_CYRUS = f"python-qpid-proton was built without Cyrus SASL, which SCRAM needs; {REBUILD}"
WITHOUT_OPENSSL = f"python-qpid-proton was built without OpenSSL; {REBUILD}"
# The client's mechanisms in a proton without Cyrus SASL.
_BUILT_IN = frozenset({"ANONYMOUS", "EXTERNAL", "PLAIN"})
# Mechanisms for a password when the options name none.  Without EXTERNAL: Cyrus prefers it to PLAIN, although
# it cannot see a certificate of asyncio's TLS.  Without the mechanisms that RFC 6331 moved to historic.
_WITH_PASSWORD = ("SCRAM-SHA-512", "SCRAM-SHA-384", "SCRAM-SHA-256", "SCRAM-SHA-224", "SCRAM-SHA-1", "PLAIN")


class SaslUnavailableError(HaclientError, RuntimeError):
    """The application asks for a mechanism that this build of proton does not have."""

    code = "sasl-unavailable"
    connection_usable = False
    safe_to_retry = False


def check_available(mechanisms: tuple[str, ...]) -> None:
    """Raise ``SaslUnavailableError`` if this build supports none of the mechanisms."""
    if mechanisms and not SASL.extended() and not _BUILT_IN.intersection(mechanisms):
        names = " ".join(mechanisms)
        msg = f"SASL {names}: {WITHOUT_CYRUS}"
        raise SaslUnavailableError(msg)
    if set(mechanisms) == {"EXTERNAL"} and not SSL.present():
        msg = f"SASL EXTERNAL: {WITHOUT_OPENSSL}"
        raise SaslUnavailableError(msg)


def configure(transport: proton.Transport, connection: proton.Connection, settings: Settings) -> None:
    """Set up the SASL layer of a transport that is not bound yet."""
    if not settings.sasl:
        return
    server = settings.sasl_server
    if server is not None:
        configure_server(transport, server, server.mechanisms, plaintext=settings.plaintext)
        transport.require_auth(server.requires_sasl)
        return
    layer = SASL(transport)
    check_available(settings.mechanisms)
    layer.allow_insecure_mechs = settings.plaintext
    layer.allowed_mechs(list(_client_mechanisms(settings)))
    if settings.user is not None:
        if not settings.mechanisms and not SASL.extended():
            _warn_of_plain()
        connection.user = settings.user
        connection.password = settings.password or ""


def configure_server(
    transport: proton.Transport, server: SaslServer, mechanisms: tuple[str, ...], *, plaintext: bool
) -> None:
    """Set up the SASL layer of a server's transport.

    :param mechanisms: to offer; empty offers all that the configuration of Cyrus allows.
    """
    layer = SASL(transport)
    if mechanisms:
        layer.allowed_mechs(list(mechanisms))
    if server.config_dir is not None:
        layer.config_path(server.config_dir)
    layer.config_name(server.config_name)
    layer.allow_insecure_mechs = plaintext


def usable_mechanisms(settings: Settings) -> tuple[str, ...]:
    """Return the mechanisms that both the settings and this build of proton allow to a client."""
    return tuple(
        name
        for name in _client_mechanisms(settings)
        if (name in _BUILT_IN or SASL.extended()) and (name != "PLAIN" or settings.plaintext)
    )


@functools.cache
def _warn_of_plain() -> None:
    """Warn once per process."""
    logger.warning("a password can be used with SASL PLAIN alone: %s", WITHOUT_CYRUS)


def _client_mechanisms(settings: Settings) -> tuple[str, ...]:
    if not settings.mechanisms:
        return ("ANONYMOUS",) if settings.user is None else _WITH_PASSWORD
    if settings.tls_domain is not None:
        return settings.mechanisms
    return tuple(name for name in settings.mechanisms if name != "EXTERNAL") or settings.mechanisms


def mechanism(transport: proton.Transport) -> str | None:
    """Return the negotiated SASL mechanism, or ``None`` if none was chosen."""
    return SASL(transport).mech or None


def outcome(transport: proton.Transport) -> int | None:
    """Return the SASL outcome: ``SASL.OK``, ``AUTH``, ``SYS``, ``PERM``, ``TEMP``, or ``None``."""
    return SASL(transport).outcome


def write_user_database(
    directory: Path, realm: str, users: dict[str, str], mechanisms: tuple[str, ...]
) -> None:
    """Write a Cyrus user database and its configuration to ``directory``.

    :param users: name to password.
    :raises SaslUnavailableError: when Cyrus or its ``saslpasswd2`` is not installed.
    """
    import shutil  # noqa: PLC0415 - loads compression libraries, and only servers make users
    import subprocess  # noqa: PLC0415

    program = shutil.which("saslpasswd2", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None or not SASL.extended():
        msg = f"users need Cyrus SASL and its saslpasswd2, of sasl2-bin (RPM: cyrus-sasl): {REBUILD}"
        raise SaslUnavailableError(msg)
    database = directory / "sasldb2"
    for name, password in users.items():
        subprocess.run(
            [program, "-c", "-p", "-f", str(database), "-u", realm, name],
            input=password.encode(),
            check=True,
            capture_output=True,
        )
    (directory / "haclient.conf").write_text(
        "pwcheck_method: auxprop\nauxprop_plugin: sasldb\n"
        f"sasldb_path: {database}\nmech_list: {' '.join(mechanisms)}\n"
    )
