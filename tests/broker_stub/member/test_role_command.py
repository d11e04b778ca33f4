"""The command that a member runs after a change of its role."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker_stub.election.roles import Role
from broker_stub.member.role_command import RoleCommand
from tests.broker_stub.commands import run


def script(folder: Path, text: str) -> str:
    """Write a command that gets the role as its first argument."""
    path = folder / "changed"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)


def has_ended(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def lines_of(path: Path, count: int) -> list[str]:
    await until(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return path.read_text().splitlines()


async def test_it_runs_once_at_a_time_and_passes_over_all_roles_but_the_last(tmp_path: Path) -> None:
    roles, go = tmp_path / "roles", tmp_path / "go"
    os.mkfifo(go)
    command = RoleCommand(script(tmp_path, f'echo "$1" >>{roles}; read -r line <{go}'))
    command.role_changed(Role.CATCHUP)
    assert await lines_of(roles, 1) == ["catchup"]
    for role in (Role.READY, Role.CONNECTING, Role.RECOVERING, Role.PRIMARY):
        command.role_changed(role)
    await asyncio.to_thread(go.write_text, "\n")
    assert await lines_of(roles, 2) == ["catchup", "primary"]
    await command.close()


async def test_what_hangs_is_killed_with_what_it_started_and_the_next_role_is_not_lost(
    tmp_path: Path,
) -> None:
    roles, pids = tmp_path / "roles", tmp_path / "pids"
    command = RoleCommand(
        script(tmp_path, f'echo "$1" >>{roles}; sleep 1000 & echo $! >>{pids}; wait'), timeout=0.5
    )
    command.role_changed(Role.READY)
    await lines_of(pids, 1)
    command.role_changed(Role.PRIMARY)
    assert await lines_of(roles, 2) == ["ready", "primary"]
    await lines_of(pids, 2)
    await command.close()
    for pid in pids.read_text().split():
        # It was killed: it ends when it is scheduled, and its new parent reaps it later.
        await until(partial(has_ended, Path(f"/proc/{pid}/stat")))


@pytest.mark.parametrize("text", ["exit 3", "kill -KILL $$"])
async def test_a_failure_is_logged_and_ends_nothing(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    command = RoleCommand(script(tmp_path, text))
    for _ in range(2):
        caplog.clear()
        command.role_changed(Role.READY)
        await until(lambda: "exit code" in caplog.text)
    await command.close()


async def test_a_command_that_is_not_there_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = RoleCommand(f"{tmp_path}/nothing")
    command.role_changed(Role.READY)
    await until(lambda: "nothing cannot be run" in caplog.text)
    await command.close()


@pytest.mark.parametrize("words", ["", "'open"])
async def test_words_that_are_no_command_are_wrong_usage(words: str) -> None:
    result = await run("serve", "--on-role-change", words)
    assert result.exit_code == 2
    assert "--on-role-change" in result.stderr
