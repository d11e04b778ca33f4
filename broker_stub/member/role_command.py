"""Runs a command after a change of the member's role, so that a resource manager learns it at once.

Rules
-----
* Only one run at a time. Of the roles that the member takes meanwhile, only the last is reported.
* A run that hangs is killed: the member never waits for it, and it never outlives the member's ``close``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from asyncio.subprocess import DEVNULL

from broker_stub.election.roles import Role
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.member.role_command")

# Seconds; Pacemaker gives the same to the actions of its agents.
_TIMEOUT = 20.0


class RoleCommand:
    """Runs a command after each change of the role, with the role as its last argument.

    :param command: words as a shell splits them; no shell runs.
    :param timeout: seconds for one run.
    :raises ValueError: if the command is empty or cannot be split.
    """

    def __init__(self, command: str, *, timeout: float = _TIMEOUT) -> None:
        self._command = tuple(shlex.split(command))
        if not self._command:
            raise ValueError("the command is empty")
        self._timeout = timeout
        self._next: Role | None = None
        self._task: asyncio.Task[None] | None = None

    def role_changed(self, role: Role) -> None:
        """Run the command for a new role, after the current run if there is one."""
        self._next = role
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="role command")

    async def close(self) -> None:
        """Stop running commands; kill the current run."""
        self._next = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._next is not None:
            role, self._next = self._next, None
            await self._run_once(role)

    async def _run_once(self, role: Role) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(role), stdin=DEVNULL, start_new_session=True
            )
        except OSError as error:
            logger.warning("%s cannot be run: %s", self._command[0], error.strerror)
            return
        try:
            async with asyncio.timeout(self._timeout):
                code = await process.wait()
        except TimeoutError:
            logger.warning("%s %s is killed after %g s", self._command[0], role, self._timeout)
        else:
            if code:
                logger.warning("%s %s: exit code %d", self._command[0], role, code)
        finally:
            # Kills its children too: its own session is its own process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
