"""The users of a cluster in a Cyrus sasldb directory, as ``haclient.engine.sasl`` writes it.

Rule: a name is one that Cyrus keeps as it is.  Cyrus takes what is behind ``@`` for a realm, and drops white
space around a name: ``cluster-admin@mail.example`` and ``cluster-admin `` would be the cluster-admin.
"""

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


def name_error(name: str) -> str:
    """Why no user can have this name; empty if one can."""
    if "@" in name:
        return f"the user name {name!r} has an @: Cyrus SASL takes what follows for a realm"
    if name != name.strip() or not name.isprintable():
        return f"the user name {name!r} has white space at an end, or a character that is not printable"
    return "" if name else "a user name is empty"


def write_users(directory: Path, passwords: dict[str, str]) -> None:
    """Write a user database for a member.

    :raises ValueError: for a name that Cyrus would change.
    :raises haclient.engine.sasl.SaslUnavailableError: without Cyrus SASL.
    """
    for name in passwords:
        if why := name_error(name):
            raise ValueError(why)
    for realm in password_realms():
        sasl.write_user_database(directory, realm, passwords, (*PASSWORD_MECHANISMS, "EXTERNAL", "ANONYMOUS"))
