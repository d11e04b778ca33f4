"""Conventions of command lines, in both programs and in all their commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import broker_stub.cli
import haclient.cli
from haclient.command_line.groups import Command

PROGRAMS = {"haclient": haclient.cli.main, "broker-stub": broker_stub.cli.main}


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = {path: command for name, program in PROGRAMS.items() for path, command in commands(program, (name,))}
IDS = [" ".join(path) for path in ALL]


def shown(path: tuple[str, ...], *arguments: str) -> str:
    program, *names = path
    done = CliRunner().invoke(PROGRAMS[program], [*names, *arguments], terminal_width=80, prog_name=program)
    return done.output


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_h_is_help(path: tuple[str, ...]) -> None:
    assert shown(path, "-h") == shown(path, "--help")
    assert shown(path, "-h").startswith(f"Usage: {' '.join(path)} ")


@pytest.mark.parametrize("path", [path for path in ALL if isinstance(ALL[path], click.Group)], ids=" ".join)
def test_the_list_of_commands_has_whole_sentences_within_80_columns(path: tuple[str, ...]) -> None:
    text = shown(path, "-h")
    listed = " ".join(text.split("Commands:")[1].split())
    assert max(map(len, text.splitlines())) <= 80
    for other, command in ALL.items():
        if other[:-1] == path:
            sentence = " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0]
            assert f"{other[-1]} {sentence.rstrip('.')}" in listed


@pytest.mark.parametrize(
    ("path", "typed", "meant"),
    [
        (("haclient",), "sned", "send"),
        (("haclient", "telemetry"), "validat", "validate"),
        (("broker-stub",), "promte", "promote"),
        (("broker-stub", "queue"), "ad", "add"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(
    path: tuple[str, ...], typed: str, meant: str
) -> None:
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in shown(path, typed)


@pytest.mark.parametrize(
    ("path", "typed", "meant"),
    [(("haclient", "send"), "--messge", "--message"), (("broker-stub", "serve"), "--listn", "--listen")],
)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(
    path: tuple[str, ...], typed: str, meant: str
) -> None:
    suggested = shown(path, typed).partition("Did you mean")[2]
    assert f"'{meant}'" in suggested


GROUPED = [path for path, command in ALL.items() if isinstance(command, Command) and command.option_groups]


def test_the_long_commands_have_groups_of_options() -> None:
    names = {" ".join(path) for path in GROUPED}
    assert {"haclient analyze", "haclient simulate", "haclient telemetry generate"} <= names
    assert {"broker-stub serve", "broker-stub pair"} <= names


@pytest.mark.parametrize("path", GROUPED, ids=" ".join)
def test_every_option_stands_once_and_an_example_follows(path: tuple[str, ...]) -> None:
    command, text = ALL[path], shown(path, "-h")
    assert isinstance(command, Command)
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = [name for names in command.option_groups.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) <= {name.removeprefix("--") for each in options for name in each.opts}
    for option in options:
        name = max(option.opts, key=len)
        assert len(re.findall(rf"^  (?:-\w, )?{name}(?![-\w])", text, re.MULTILINE)) == 1, name
    for heading in command.option_groups:
        assert f"\n{heading}:\n" in text
    assert f"    {' '.join(path)} " in text.split("Examples:")[1]
