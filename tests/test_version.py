"""Every version number equals the installed package's."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import haclient
from haclient.testing.threads import in_thread
from tests.peers import primary, url

INSTALLED = importlib.metadata.version("haclient")


def output(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_the_package_has_a_version() -> None:
    assert haclient.__version__ == INSTALLED


def test_importing_the_package_does_not_look_for_it() -> None:
    program = "import haclient, json, sys; haclient.connect; print(json.dumps(sorted(sys.modules)))"
    assert "haclient.version" in (loaded := json.loads(output("-c", program)))
    assert "importlib.metadata" not in loaded


def test_both_commands_print_it() -> None:
    assert output("-m", "broker_stub", "--version") == f"broker-stub {INSTALLED}\n"
    program = "from haclient.cli import main; main(['--version'])"
    assert output("-c", program) == f"haclient {INSTALLED}\n"


def test_a_client_announces_its_product_and_version() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)):
        (engine,) = peer.engines
        announced = engine.peer_properties
        assert (announced["product"], announced["version"]) == ("haclient", INSTALLED)
