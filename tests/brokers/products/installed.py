"""The folders of the brokers that ``scripts/setup_brokers.sh`` unpacks, and the check for missing parts."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.examples.program import ROOT

CACHE = ROOT / ".brokers"
ARTEMIS_VERSION, BROKER_J_VERSION, ACTIVEMQ_VERSION = "2.56.0", "10.1.0", "5.17.6"
KEYCLOAK_VERSION = "26.7.3"
ARTEMIS = CACHE / f"apache-artemis-{ARTEMIS_VERSION}"
BROKER_J = CACHE / "qpid-broker" / BROKER_J_VERSION
ACTIVEMQ = CACHE / f"apache-activemq-{ACTIVEMQ_VERSION}"
KEYCLOAK = CACHE / f"keycloak-{KEYCLOAK_VERSION}"
DEBIAN_13 = CACHE / "debian-13"
"""A Debian with RabbitMQ 4, for ``chroot``."""


def missing(product: str, folder: Path) -> str:
    """Return why a Java product cannot be started here; empty if it can."""
    if not folder.is_dir():
        return f"{product} is not installed: scripts/setup_brokers.sh installs it"
    absent = [tool for tool in ("java", "setpriv") if shutil.which(tool) is None]
    return f"{product} needs {' and '.join(absent)}: scripts/setup_brokers.sh installs it" if absent else ""
