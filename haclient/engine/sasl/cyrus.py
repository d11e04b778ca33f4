"""SASL by proton and Cyrus: a server's users, a client's Kerberos, and a client behind proton's own TLS.

The last is one of the drop-in with an ``SSLDomain``.  It has ANONYMOUS, PLAIN, EXTERNAL, and the mechanisms
of Cyrus SASL if proton was built with it.

Sources: AMQP 1.0 part 5, section 5.3; RFC 4422; proton's ``pn_sasl_*`` documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import proton
from proton import SASL

from haclient.engine import REBUILD
from haclient.engine.sasl.mechanisms import WITH_PASSWORD, SaslUnavailableError
from haclient.engine.settings import SaslServer, Settings

if TYPE_CHECKING:
    from pathlib import Path


class ProtonSasl:
    """The negotiation of a client behind proton's own TLS, as ``client.ClientSasl`` reports it."""

    done = ended = True
    offered: tuple[str, ...] = ()
    proved = False

    def __init__(self, transport: proton.Transport) -> None:
        self._sasl = SASL(transport)

    @property
    def mechanism(self) -> str | None:
        """Return the mechanism that was chosen; ``None`` if none was."""
        name = self._sasl.mech or None
        return None if name == "none" else name

    @property
    def outcome(self) -> int | None:
        """Return the code of the outcome; ``None`` before it."""
        return self._sasl.outcome

    @property
    def user(self) -> str | None:
        """Return the name under which the client has logged in."""
        return self._sasl.user


def configure(transport: proton.Transport, connection: proton.Connection, settings: Settings) -> None:
    """Set up proton's SASL layer of a transport that is not bound yet."""
    server = settings.sasl_server
    if server is not None:
        configure_server(transport, server, server.mechanisms, plaintext=settings.plaintext)
        transport.require_auth(server.requires_sasl)
        return
    layer = SASL(transport)
    layer.allow_insecure_mechs = settings.plaintext
    allowed = settings.mechanisms or (("ANONYMOUS",) if settings.user is None else WITH_PASSWORD)
    layer.allowed_mechs(list(allowed))
    if settings.user is not None:
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
