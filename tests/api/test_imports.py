"""Connecting imports no modules that only commands need, and no telemetry writer unless telemetry is on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from haclient.testing.threads import in_thread
from tests.peers import primary, url

UNWANTED = {
    "benchmarks",
    "broker_stub",
    "click",
    "opentelemetry",
    "prometheus_client",
    "pyspark",
    "rich",
    "haclient.analysis",
    "haclient.cli",
    "haclient.reactor",
    "haclient.simulation",
    "haclient.testing",
    "haclient.tracing",
    "haclient.utils",
}
WRITER = {
    "haclient.telemetry.files",
    "haclient.telemetry.jsonl",
    "haclient.telemetry.record",
    "haclient.telemetry.writer",
}
# Optional parts, and modules that Python's other modules load by the dozen: for configuration files, names,
# delays
# and mistakes, which are needed later or never.
LATER = {
    "backoff",
    "difflib",
    "dns",
    "email",
    "haclient.configuration",
    "importlib.metadata",
    "lzma",
    "pathlib",
    "proton._reactor",
    "shutil",
    "tomllib",
    "zipfile",
}
BLOCKING = """
import haclient
with haclient.connect({url!r}{more}) as connection:
    connection.create_sender("q").send(haclient.Message(body=1))
"""
ASYNCIO = """
import asyncio
import haclient.aio
from proton import Message

async def main():
    async with haclient.aio.connect({url!r}{more}) as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body=1))

asyncio.run(main())
"""
LIST = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded(program: str, **facts: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    text = program.format(**facts) + LIST
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def below(modules: set[str], names: set[str]) -> set[str]:
    """Return the modules that are one of the names, or inside one."""
    return {module for module in modules for name in names if f"{module}.".startswith(f"{name}.")}


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "aio"])
def test_a_connection_loads_no_more_than_it_needs(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HACLIENT_TELEMETRY", raising=False)
    with in_thread(primary()) as peer:
        modules = loaded(program, url=url(peer), more="")
    assert "haclient.core.connection" in modules
    assert below(modules, UNWANTED | WRITER) == set()


@pytest.mark.parametrize("name", ["haclient.connect", "haclient.aio.connect"])
def test_importing_loads_nothing_for_later(name: str) -> None:
    modules = loaded(f"import haclient\n{name}\n")
    assert below(modules, UNWANTED | WRITER | LATER) == set()


def test_telemetry_loads_the_writer(tmp_path: object) -> None:
    with in_thread(primary()) as peer:
        modules = loaded(BLOCKING, url=url(peer), more=f", telemetry={str(tmp_path)!r}")
    assert modules >= WRITER
    assert below(modules, UNWANTED) == set()


@pytest.mark.parametrize("name", ["errors", "events", "outcome"])
def test_facts_load_no_machinery(name: str) -> None:
    modules = loaded(f"import haclient.{name}\n")
    assert below(modules, UNWANTED | WRITER | {"haclient.core", "haclient.aio", "dns"}) == set()
