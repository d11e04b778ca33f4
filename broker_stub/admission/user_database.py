"""The users of a cluster in a Cyrus sasldb directory, as ``haclient.engine.sasl`` writes it."""

from __future__ import annotations

import socket
from pathlib import Path

from haclient.engine import sasl

DEFAULT_ADMIN = "cluster-admin"
# SCRAM first: a client that may choose takes the first it knows.
PASSWORD_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN")


def password_realms() -> tuple[str, ...]:
    """The realms under which Cyrus looks for a user without one: the names of this host."""
    name = socket.gethostname()
    try:
        canonical = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        canonical = ""
    return tuple(dict.fromkeys(realm for realm in (name, canonical, canonical.lower()) if realm))


def write_users(directory: Path, passwords: dict[str, str]) -> None:
    """Write a user database for a member.

    :raises haclient.engine.sasl.SaslUnavailableError: without Cyrus SASL.
    """
    for realm in password_realms():
        sasl.write_user_database(directory, realm, passwords, (*PASSWORD_MECHANISMS, "EXTERNAL", "ANONYMOUS"))
