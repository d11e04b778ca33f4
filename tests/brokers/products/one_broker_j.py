"""One node of Broker-J that takes tokens, by XOAUTH2: it asks Keycloak about each one, with the token itself.

Source: the broker's own documentation, chapter "OAuth2".
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any, Self

from haclient.cluster_url.endpoint import Endpoint
from tests import leash
from tests.brokers.products import installed
from tests.brokers.products.broker_j import QUEUES
from tests.brokers.products.keycloak import PROGRAM, SECRET, Keycloak
from tests.certificates import Authority
from tests.dnsmasq import free_port

_PATIENCE = 60.0
_NODE = "node"


class OneBrokerJ:
    """A running node.

    :param folder: for its configuration and log.
    :param keycloak: has ``secure_url``: the broker asks by ``https`` only.
    :param authority: has issued Keycloak's certificate.
    """

    def __init__(self, folder: Path, keycloak: Keycloak, authority: Authority) -> None:
        self._endpoint = Endpoint("127.0.0.1", free_port())
        initial, self.log = folder / "initial.json", folder / "log"
        initial.write_text(json.dumps(self._configuration(keycloak.secure_url, authority)))
        configuration = ("-icp", str(initial), "-sp", str(folder / "config.json"))
        main = ("-cp", f"{installed.BROKER_J / 'lib'}/*", "org.apache.qpid.server.Main", *configuration)
        machine = ("java", "-Xmx256M", "-XX:MaxDirectMemorySize=128M", "-XX:+UseSerialGC")
        files = {
            "QPID_WORK": folder,
            "java.io.tmpdir": folder,
            "derby.stream.error.file": folder / "derby.log",
        }
        self._command = (*machine, *(f"-D{name}={path}" for name, path in files.items()), *main)

    @property
    def url(self) -> str:
        return f"amqp://{self._endpoint.authority}"

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = leash.start(*self._command, output=log)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection((self._endpoint.host, self._endpoint.port)).close()
            except OSError:
                time.sleep(0.1)
            else:
                return self
        self.__exit__()
        raise RuntimeError(f"Broker-J does not serve: {self.log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        leash.kill(self._process)

    def _configuration(self, realm: str, authority: Authority) -> dict[str, Any]:
        requests = f"{realm}/protocol/openid-connect"
        return {
            "name": "tokens",
            "modelVersion": "8.0",
            "truststores": [
                {"name": "keycloak", "type": "NonJavaTrustStore", "certificatesUrl": authority.file.as_uri()}
            ],
            "authenticationproviders": [
                {
                    "name": "tokens",
                    "type": "OAuth2",
                    "secureOnlyMechanisms": [],
                    "identityResolverType": "KeycloakOpenID",
                    "authorizationEndpointURI": f"{requests}/auth",
                    "tokenEndpointURI": f"{requests}/token",
                    "identityResolverEndpointURI": f"{requests}/userinfo",
                    "trustStore": "keycloak",
                    "clientId": PROGRAM,
                    "clientSecret": SECRET,
                    "scope": "openid",
                }
            ],
            "ports": [
                {
                    "name": "AMQP",
                    "port": self._endpoint.port,
                    "bindingAddress": self._endpoint.host,
                    "authenticationProvider": "tokens",
                    "protocols": ["AMQP_1_0"],
                    "virtualhostaliases": [
                        {
                            "name": "any",
                            "type": "patternMatchingAlias",
                            "pattern": ".*",
                            "virtualHostNode": _NODE,
                        }
                    ],
                }
            ],
            "virtualhostnodes": [
                {
                    "name": _NODE,
                    "type": "BDB",
                    "virtualHostInitialConfiguration": json.dumps(
                        {"type": "BDB", "nodeAutoCreationPolicies": [QUEUES]}
                    ),
                }
            ],
            "brokerloggers": [
                {
                    "name": "console",
                    "type": "Console",
                    "brokerloginclusionrules": [
                        {"name": "all", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"}
                    ],
                }
            ],
        }
