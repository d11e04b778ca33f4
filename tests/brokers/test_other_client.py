"""A program on another client yields a history like one on haclient."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from tests.brokers.programs.other_client import relay
from tests.brokers.programs.task import ProgramJournal, Task, members
from tests.faults.history import Fate, Name
from tests.hosts.journal import read
from tests.interop.clients.toolchains import Command

# The program settles every second message, and ends when its input ends.
_PROGRAM = """
import os, sys
assert sys.argv[1:] == ["send", "a:1,b:2", "q", "producer", "40", "0"], sys.argv
assert (os.environ["CLIENT_USER"], os.environ["CLIENT_PASSWORD"]) == ("guest", "p/w")
print("connected a:1", "sent 0", "accepted 0", "sent 1", "lost a:1", sep="\\n", flush=True)
sys.exit(3 if sys.stdin.read() else 0)
"""


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://guest:p%2Fw@a:1,b:2/?heartbeat=4", (["a:1", "b:2"], "guest", "p/w")),
        ("amqp://a:1", (["a:1"], "", "")),
    ],
)
def test_other_clients_get_the_members_and_the_account(url: str, expected: object) -> None:
    assert members(url) == expected


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
async def test_what_it_prints_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = Task(
        role="producer",
        url="amqp://guest:p%2Fw@a:1,b:2/",
        queue="q",
        journal=str(tmp_path / "journal"),
        name="producer",
        rate=40.0,
    )
    finishing = asyncio.Event()
    finishing.set()
    with Path(task.journal).open("w") as file:
        command = Command((sys.executable, "-c", _PROGRAM))
        assert await relay(task, command, ProgramJournal(file, task.name), finishing) == 0
    assert capsys.readouterr().out == "ready\n"
    events: list[str] = []
    history = read([Path(task.journal)], lambda line: events.append(line["event"]))
    assert history.fates == {Name("producer", 0): Fate.ACKNOWLEDGED}
    assert len(history.sent) == 2
    assert events == ["connected", "lost"]
