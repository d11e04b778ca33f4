"""The users of a cluster in a Cyrus sasldb directory, as ``haclient.engine.sasl.cyrus`` writes it.

Rule: only names that Cyrus keeps unchanged are allowed. Cyrus takes the part after ``@`` as a realm, and
strips white space around a name: ``cluster-admin@mail.example`` and ``cluster-admin `` would be the
cluster-admin.
"""

from __future__ import annotations

import socket
from pathlib import Path

from haclient.engine.sasl import cyrus

DEFAULT_ADMIN = "cluster-admin"
# SCRAM first: a client takes the first mechanism that it knows.
PASSWORD_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN")


def password_realms() -> tuple[str, ...]:
    """Return the realms in which Cyrus looks for a user without a realm: the names of this host."""
    name = socket.gethostname()
    try:
        canonical = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        canonical = ""
    return tuple(dict.fromkeys(realm for realm in (name, canonical, canonical.lower()) if realm))


def name_error(name: str) -> str:
    """Return the reason why a user name is not allowed; empty if it is."""
    if "@" in name:
        return f"the user name {name!r} has an @: Cyrus SASL takes what follows for a realm"
    if name != name.strip() or not name.isprintable():
        return f"the user name {name!r} has white space at an end, or a character that is not printable"
    return "" if name else "a user name is empty"


def write_users(directory: Path, passwords: dict[str, str]) -> None:
    """Write a user database for a member.

    :raises ValueError: if Cyrus would change a name.
    :raises haclient.errors.SaslUnavailableError: if Cyrus SASL is missing.
    """
    for name in passwords:
        if why := name_error(name):
            raise ValueError(why)
    for realm in password_realms():
        cyrus.write_user_database(
            directory, realm, passwords, (*PASSWORD_MECHANISMS, "EXTERNAL", "ANONYMOUS")
        )
