"""``send``, ``receive`` and ``move`` print the client's advice about capabilities. The peers are scripted."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from tests.cli.command import run
from tests.peers import Primary, primary

ARTEMIS = {"product": "apache-activemq-artemis"}


async def sent(peer: Primary, *more: str, command: tuple[str, ...] = ("send",)) -> str:
    """Return the standard error of the command."""
    url, text = f"amqp://{peer.address}", "a message\n"
    done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
        run, *command[:1], url, *command[1:], "orders", *more, text=text
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


async def test_send_says_so_once() -> None:
    async with primary(properties=ARTEMIS) as peer:
        error = await sent(peer)
    (note,) = [line for line in error.splitlines() if line.startswith("note: ")]
    assert "makes a topic" in note
    assert note.endswith("--capability says so")


async def test_move_says_so_of_its_target() -> None:
    async with primary(properties=ARTEMIS) as peer:
        peer.put("old", "a message")
        error = await sent(peer, "--timeout", "0.2", command=("move", "old"))
    assert error.count("makes a topic") == 1
    assert "'orders'" in error


@pytest.mark.parametrize("more", [("--capability", "queue"), ("--quiet",)])
async def test_with_the_option_or_quiet_it_does_not(more: tuple[str, ...]) -> None:
    async with primary(properties=ARTEMIS) as peer:
        assert "note: " not in await sent(peer, *more)


@pytest.mark.parametrize("command", ["send", "receive"])
async def test_an_address_that_makes_a_queue_on_one_node_is_named_without_a_capability(command: str) -> None:
    async with primary(properties={"product": "RabbitMQ", "version": "4.0.5"}) as peer:
        more = ("--timeout", "0.2") if command == "receive" else ()
        error = await sent(peer, *more, command=(command,))
    (note,) = [line for line in error.splitlines() if line.startswith("note: ")]
    assert note.endswith("declare a quorum queue, and write /queues/orders")
