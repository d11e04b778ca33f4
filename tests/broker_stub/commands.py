"""The commands, run in this process; their members are separate processes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click.testing

from broker_stub.cli import main
from broker_stub.cli.options import PASSWORD_VARIABLE
from tests.broker_stub.replication.cluster import ADMIN


async def run(*arguments: str, given: bytes | None = None, **environment: str) -> click.testing.Result:
    """Run a command.

    :param given: its standard input.
    """
    runner = click.testing.CliRunner(env={PASSWORD_VARIABLE: None, **environment})
    return await asyncio.to_thread(runner.invoke, main, arguments, input=given)


async def manage(*arguments: str) -> click.testing.Result:
    """Run a command on a ``Cluster``, as its cluster-admin."""
    return await run(*arguments, **{PASSWORD_VARIABLE: ADMIN.password})


async def json_of(*arguments: str) -> Any:
    """Return such a command's JSON output; it must succeed."""
    result = await manage(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
