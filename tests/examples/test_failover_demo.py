"""``make demo``, shortened: the same program with one kill."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import signal
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from haclient.errors import HaclientError
from tests.examples.program import EXAMPLES

DEMO = EXAMPLES / "failover_demo.py"


async def demo(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    """Start it; its output is read at once or line by line."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(DEMO),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )


def count(output: str, row: str) -> int:
    """Return the number in a row of the final table."""
    found = re.search(rf"[│|] {row} +[│|] ([\d,]+)", output)
    assert found, f"no row {row!r} in:\n{output}"
    return int(found[1].replace(",", ""))


@pytest.mark.slow
async def test_the_demo_kills_the_primary_and_every_send_settles() -> None:
    process = await demo("--kills", "1", "--interval", "1", "--rate", "500", "--plain", COLUMNS="120")
    output, errors = (text.decode() for text in await asyncio.wait_for(process.communicate(), 60))

    assert process.returncode == 0, errors
    assert "SIGKILL for member-" in output
    assert "generation 2" in output
    assert count(output, "sent") == count(output, "settled") > 0
    assert count(output, "not settled") == 0
    assert count(output, "settled but missing") == 0
    assert count(output, "received") == count(output, "settled")
    assert "store:       SQLite" in output
    assert "arbiter:     directory:" in output
    assert count(output, "attempts") >= 2
    assert "▼ killed" in output
    sent = f"{count(output, 'sent'):,}"
    last = output.splitlines()[-1]
    assert last.startswith(
        f"One primary was killed; {sent} of {sent} messages arrived, none lost; the longest "
    )


@pytest.mark.slow
async def test_a_narrow_ascii_terminal_is_enough() -> None:
    process = await demo(
        "--kills", "0", "--interval", "0.2", "--plain", COLUMNS="30", PYTHONIOENCODING="ascii", LC_ALL="C"
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert "No primary was killed" in output.decode("ascii")


@pytest.mark.slow
async def test_ctrl_c_ends_the_demo_and_its_members_without_a_traceback() -> None:
    process = await demo("--plain")
    assert process.stdout is not None
    while b"arbiter:" not in await asyncio.wait_for(process.stdout.readline(), 30):
        assert not process.stdout.at_eof()
    members = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, errors = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 130
    assert b"Interrupted" in output
    assert errors == b""
    assert len(members) >= 2
    assert not any(member.is_running() for member in members)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> ModuleType:
    """Import the program as a module, without a run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("haclient", "broker_stub"):
        caplog.set_level(logging.NOTSET, name)  # the program sets them; this restores them
    spec = importlib.util.spec_from_file_location("failover_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "failover_demo", module)
    spec.loader.exec_module(module)
    return module


def test_a_missing_message_fails_the_demo(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def demonstrate(*_: object, **__: object) -> Any:
        return module.Totals(sent=3, settled={0, 1, 2}, received=Counter([0, 1]), settled_at=[0.1, 0.2, 0.3])

    monkeypatch.setattr(module, "demonstrate", demonstrate)
    result = CliRunner().invoke(module.main, ["--plain"])
    assert result.exit_code == 1
    assert "2 of 3 messages arrived, 1 lost" in result.output
    assert result.output.endswith("Error: messages are missing: see the table above\n")


def test_an_error_of_a_task_is_one_line(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def demonstrate(*_: object, **__: object) -> Any:
        raise ExceptionGroup("tasks", [HaclientError("no broker serves")])

    monkeypatch.setattr(module, "demonstrate", demonstrate)
    result = CliRunner().invoke(module.main, ["--plain"])
    assert (result.exit_code, result.output) == (1, "Error: no broker serves\n")
