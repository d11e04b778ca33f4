"""Users of Cyrus SASL, for the servers of proton and others that judge our own SASL."""

from __future__ import annotations

import subprocess
from pathlib import Path

REALM = "cluster"


def write_user_database(directory: Path, users: dict[str, str], mechanisms: tuple[str, ...]) -> None:
    """Write a user database, and the configuration of Cyrus beside it.

    :param users: names without the realm, and their passwords.
    """
    database = directory / "sasldb2"
    for name, password in users.items():
        command = ["/usr/sbin/saslpasswd2", "-c", "-p", "-f", str(database), "-u", REALM, name]
        subprocess.run(command, input=password.encode(), check=True, capture_output=True)
    (directory / "haclient.conf").write_text(
        "pwcheck_method: auxprop\nauxprop_plugin: sasldb\n"
        f"sasldb_path: {database}\nmech_list: {' '.join(mechanisms)}\n"
    )
