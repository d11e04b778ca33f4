"""Names chosen by clients are printable lines in the terminal of an operator, and in the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from haclient import aio
from haclient.errors import HaclientError
from tests.broker_stub.commands import manage
from tests.broker_stub.replication.cluster import Cluster
from tests.cli.hostile import EVIL, assert_printable

NAME = EVIL.replace("\0", "")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as cluster:
        yield cluster


async def test_no_command_shows_a_name_as_it_is(cluster: Cluster) -> None:
    await cluster.pair()
    commands = [
        ("queue", "add", NAME),
        ("queue", "add", NAME),  # the name exists already
        ("queue", "list"),
        ("exchange", "add", NAME + "x", "--type", "topic"),
        ("exchange", "list"),
        ("binding", "add", NAME + "x", NAME, "--key", NAME),
        ("binding", "list"),
        ("binding", "remove", NAME, NAME),
        ("queue", "remove", NAME + "y"),
        ("site", "status"),
        ("status",),
    ]
    shown = [await manage(*command, cluster.url) for command in commands]
    for command, result in zip(commands, shown, strict=True):
        assert_printable(result.output)
        assert_printable(result.stderr)
        if "list" in command:
            assert "FORGED" in result.output
    assert "there is already a queue" in shown[1].stderr


async def test_no_log_record_of_a_member_holds_what_a_client_chose(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await cluster.pair()
    async with aio.connect(cluster.url, client_id=NAME) as connection:
        for address in (NAME, f"{NAME}/{NAME}", f"$management/{NAME}"):
            for create in (connection.create_sender, connection.create_receiver):
                try:
                    link = await create(address, name=f"{NAME}{address}{create.__name__}", timeout=1)
                except HaclientError as error:
                    assert_printable(str(error))
                else:
                    await link.close()
    for record in caplog.records:
        if record.name.startswith(("haclient", "broker_stub")):
            assert record.getMessage().isprintable()
            assert_printable(logging.Formatter().format(record))
