"""The page on the commands has every command and every option."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from broker_stub.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "broker-stub.md"


def commands(group: click.Group, path: str = "broker-stub") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(main))


@pytest.mark.parametrize("path", COMMANDS)
def test_the_page_has_every_command_and_every_option(path: str) -> None:
    page, command = PAGE.read_text(), COMMANDS[path]
    assert path in page
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"{option}`" in page or f"{option} " in page or f"{option}]" in page, option
