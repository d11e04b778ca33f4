"""A client with deliberate faults goes through a failover, and the judge finds them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.examples.program import ROOT
from tests.interop.clients.failovers import ProgramError, Result, run
from tests.interop.clients.toolchains import Client, Command

_PROGRAM = str(Path(__file__).with_name("planted.py"))


async def one_failover(planted: str, folder: Path, last_wait: float = 60) -> Result:
    environment = (("PLANTED", planted), ("PYTHONPATH", str(ROOT)))
    command = Command((sys.executable, _PROGRAM), environment)
    client = Client(name="planted", version="0", sources="", build=lambda _: command)
    return await run(client, command, kills=1, folder=folder, last_wait=last_wait)


async def test_nothing_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    result = await one_failover("nothing", tmp_path)
    assert result.holds
    assert result.verdict.acknowledged >= 400
    assert len(result.send_outages) == len(result.receive_outages) == 1
    assert min(*result.send_outages, *result.receive_outages) > 0


async def test_a_message_that_is_twice_in_the_queue_is_found(tmp_path: Path) -> None:
    result = await one_failover("double", tmp_path)
    assert not result.holds
    doubled = {name.number for name in result.verdict.twice}
    assert {49, 99, 149, 199} <= doubled
    assert all(number % 50 == 49 for number in doubled)


async def test_a_message_that_its_sender_gives_up_is_found(tmp_path: Path) -> None:
    result = await one_failover("give up", tmp_path)
    assert not result.holds
    assert result.unsettled >= 8


async def test_a_settled_message_that_never_comes_is_found(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"\d+ missing, .*number=49.*stands still"):
        await one_failover("lose", tmp_path, last_wait=5)


async def test_a_program_that_ends_early_is_found(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="planted-sender ended before"):
        await one_failover("end", tmp_path)
