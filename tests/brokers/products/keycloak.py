"""Keycloak on this machine: it issues the tokens of one program, ``PROGRAM``, to ``ClientCredentials``.

Source: Keycloak's "Server Administration Guide", chapters on importing realms and on service accounts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from haclient.tokens import ClientCredentials
from tests import leash
from tests.brokers.products import installed
from tests.certificates import Certificate
from tests.dnsmasq import free_port

PROGRAM, SECRET, REALM, AUDIENCE = "orders", "the secret of orders", "brokers", "rabbitmq"
# What RabbitMQ reads as permissions: see its page "OAuth 2.0".
_SCOPES = " ".join(f"{AUDIENCE}.{each}:*/*" for each in ("configure", "read", "write"))
_PATIENCE = 180.0


class Keycloak:
    """A server with one realm, from a copy of the installation.

    :param folder: for the copy.
    :param lifespan: seconds that a token is valid.
    :param certificate: serves ``https`` too, for brokers that ask by nothing else.
    """

    def __init__(self, folder: Path, *, lifespan: int = 300, certificate: Certificate | None = None) -> None:
        home = folder / "keycloak"
        shutil.copytree(installed.KEYCLOAK, home, copy_function=os.link)
        imported = home / "data" / "import"
        imported.mkdir(parents=True)
        (imported / "realm.json").write_text(json.dumps(_realm(lifespan)))
        port = free_port()
        self._realm_url = f"http://127.0.0.1:{port}/realms/{REALM}"
        https: tuple[str, ...] = ()
        if certificate is not None:
            self.secure_url = f"https://127.0.0.1:{(secure := free_port())}/realms/{REALM}"
            shown = (f"--https-certificate-file={certificate.chain}",)
            https = (*shown, f"--https-certificate-key-file={certificate.key}", f"--https-port={secure}")
        http = ("--http-enabled=true", "--http-host=127.0.0.1", f"--http-port={port}")
        options = ("--optimized", "--import-realm", f"--hostname=http://127.0.0.1:{port}", *http)
        self._command = (str(home / "bin" / "kc.sh"), "start", *options, *https)
        self._log = folder / "keycloak.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        environment = {**os.environ, "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx384m"}
        with self._log.open("wb") as log:
            self._process = leash.start(*self._command, env=environment, output=log)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.get("/.well-known/openid-configuration")
            except OSError:
                time.sleep(0.2)
            else:
                return self
        self.__exit__()
        raise RuntimeError(f"Keycloak does not serve: {self._log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            leash.kill(self._process)

    def get(self, path: str) -> dict[str, Any]:
        """Return a document of the realm."""
        with urllib.request.urlopen(self._realm_url + path, timeout=5) as answer:  # noqa: S310 - http
            found: dict[str, Any] = json.load(answer)
        return found

    @property
    def issuer(self) -> str:
        """The issuer of the tokens."""
        return self._realm_url

    @property
    def key_set(self) -> str:
        """The URL of the key set."""
        return f"{self._realm_url}/protocol/openid-connect/certs"

    def credentials(self, secret: str = SECRET, *, scope: str | None = None) -> ClientCredentials:
        """Return what supplies the program's tokens."""
        url = f"{self._realm_url}/protocol/openid-connect/token"
        return ClientCredentials(url, PROGRAM, secret, scope=scope)


def _realm(lifespan: int) -> dict[str, Any]:
    claims = {"claim.name": "extra_scope", "claim.value": _SCOPES, "jsonType.label": "String"}
    mappers = [
        ("audience", "oidc-audience-mapper", {"included.custom.audience": AUDIENCE}),
        ("scopes", "oidc-hardcoded-claim-mapper", claims),
    ]
    return {
        "realm": REALM,
        "enabled": True,
        "accessTokenLifespan": lifespan,
        "clients": [
            {
                "clientId": PROGRAM,
                "secret": SECRET,
                "serviceAccountsEnabled": True,
                "standardFlowEnabled": False,
                "protocolMappers": [
                    {
                        "name": name,
                        "protocol": "openid-connect",
                        "protocolMapper": mapper,
                        "config": {**config, "access.token.claim": "true"},
                    }
                    for name, mapper, config in mappers
                ],
            }
        ],
    }
