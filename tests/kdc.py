"""A Kerberos realm with its own KDC on loopback, and a server's side of GSSAPI by the library gssapi.

    with Realm(tmp_path) as realm:
        realm.use(monkeypatch)
        service = realm.service("amqp/localhost")
        realm.log_in("alice")

Sources: MIT's manuals of krb5.conf, kdc.conf and kadmin; RFC 4752, section 3.2 (the server's side).
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest

from tests import leash
from tests.dnsmasq import free_port

REALM = "TEST.REALM"
PASSWORD = "secret of alice"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_PATIENCE = 20.0


def missing() -> str:
    """Name the missing library or program; empty if there is none."""
    if find_spec("gssapi") is None:
        return "the library gssapi is missing: pip install '.[kerberos]'"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"{absent[0]} is missing: apt-get install krb5-kdc krb5-admin-server krb5-user" if absent else ""


class Realm:
    """A realm, its KDC, and the ticket cache of one client.

    :ivar config: the file krb5.conf.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.config = folder / "krb5.conf"
        self._kdc: subprocess.Popen[bytes] | None = None
        self._write()
        self.environment = {
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'tickets'}",
            "KRB5_CLIENT_KTNAME": f"FILE:{folder / 'client.keytab'}",
            "KRB5RCACHENAME": "none:",  # the usual one is a file that all realms share
        }

    def _write(self) -> None:
        folder, listen = self._folder, f"127.0.0.1:{self.port}"
        folder.mkdir(exist_ok=True)
        self.config.write_text(f"""\
[libdefaults]
  default_realm = {REALM}
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  clockskew = 1
[realms]
  {REALM} = {{
    kdc = {listen}
  }}
""")
        (folder / "kdc.conf").write_text(f"""\
[kdcdefaults]
  kdc_listen = {listen}
  kdc_tcp_listen = {listen}
[realms]
  {REALM} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
""")

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-P", "master")
        self._admin("addprinc", "-pw", PASSWORD, "alice")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC, and wait until it listens."""
        self._kdc = leash.start("krb5kdc", "-n", env=self.environment)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._kdc.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.02)
        raise RuntimeError("krb5kdc does not listen")

    def stop(self) -> None:
        """Stop the KDC."""
        if self._kdc is not None:
            leash.kill(self._kdc)
            self._kdc = None

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Make it the realm of this process."""
        for name, value in self.environment.items():
            if name != "PATH":
                patch.setenv(name, value)

    def service(self, name: str) -> Path:
        """Add a service; return its keytab."""
        keytab = self._folder / f"{name.replace('/', '-')}.keytab"
        self._admin("addprinc", "-randkey", name)
        self._admin("ktadd", "-k", str(keytab), name)
        return keytab

    def log_in(self, user: str = "alice", *options: str) -> None:
        """Get a user's ticket, as ``kinit`` does, in place of any other."""
        self._run("kinit", *options, user, given=PASSWORD)

    def log_out(self) -> None:
        """Remove the tickets."""
        (self._folder / "tickets").unlink(missing_ok=True)

    def write_client_keytab(self, user: str) -> None:
        """Add a user; write its key for the library, which gets tickets by it."""
        self._admin("addprinc", "-randkey", user)
        self._admin("ktadd", "-k", str(self._folder / "client.keytab"), user)

    def change_key(self, user: str) -> None:
        """Give a user another key than the one in the keytab."""
        self._admin("cpw", "-randkey", user)

    def _admin(self, *words: str) -> None:
        self._run("kadmin.local", *words)

    def _run(self, *command: str, given: str = "") -> None:
        done = subprocess.run(
            command, env=self.environment, input=given, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


class Acceptor:
    """A server's side of one exchange.

    :param layers: the bit mask of security layers to offer.
    :ivar user: the client, after its last message.
    """

    def __init__(self, keytab: Path, layers: int = 1) -> None:
        import gssapi

        self.user = ""
        self._layers, self._has_offered = layers, False
        credentials = gssapi.Credentials(usage="accept", store={"keytab": str(keytab)})
        self._context: Any = gssapi.SecurityContext(creds=credentials, usage="accept")

    def answer(self, message: bytes) -> bytes | None:
        """Return the challenge to a message; ``None`` after the last one, if the client may enter."""
        if not self._context.complete:
            return bytes(self._context.step(message) or b"")
        if not self._has_offered:
            self._has_offered = True
            return bytes(self._context.wrap(bytes((self._layers, 0, 0, 0)), False).message)
        assert self._context.unwrap(message).message == b"\x01\0\0\0"
        self.user = str(self._context.initiator_name)
        return None
