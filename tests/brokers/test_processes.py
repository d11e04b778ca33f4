"""A failing program ends its cell, with the end of its standard error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import processes
from tests.brokers.processes import ProgramError, running
from tests.brokers.programs.task import Task
from tests.brokers.run import with_options


def task(folder: Path, url: str) -> Task:
    return Task(role="producer", url=url, queue="q", journal=str(folder / "p.jsonl"), name="producer")


async def test_a_program_that_ends_before_it_is_attached_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"producer ended before it was attached\n(.|\n)*ClusterURLError"):
        async with running("asyncio", task(tmp_path, "amqp://127.0.0.1/?no_such_option=1")):
            pass


async def test_a_program_that_is_not_attached_in_time_is_reported_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Port 1 has no listener, and the program keeps trying."""
    monkeypatch.setattr(processes, "_START", 1.0)
    with pytest.raises(ProgramError, match="producer not attached in 1 s"):
        async with running("asyncio", task(tmp_path, "amqp://127.0.0.1:1")):
            pass


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://a:1,b:2", "amqp://a:1,b:2/?heartbeat=4"),
        ("amqp://a:1/", "amqp://a:1/?heartbeat=4"),
        ("amqp://a:1/?redirects=none", "amqp://a:1/?redirects=none&heartbeat=4"),
    ],
)
def test_options_are_added_to_a_url(url: str, expected: str) -> None:
    assert with_options(url, "heartbeat=4") == expected
