"""Readers can type the code on pages: Python compiles, data parses, commands and their options exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import benchmarks.grid.__main__ as grid
import benchmarks.storm.__main__ as storm
import broker_stub.cli
import haclient.cli
from tests.docs.pages import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_COMMANDS = {
    "haclient": haclient.cli.main,
    "broker-stub": broker_stub.cli.main,
    "benchmarks.grid": grid.main,
    "benchmarks.storm": storm.storm,
}
# The start of a typed line, possibly after a prompt or the environment's folder.
_TYPED = re.compile(
    r"^ {4,}(?:\$ )?(?:\S*/bin/|python -m (?=b))?((?:haclient|broker-stub|benchmarks\.\w+) (?!\.).*)$",
    re.MULTILINE,
)
# Words after which the shell takes over.
_SHELL = frozenset({"|", "||", "<", ">", ">>", "<<<", "&", "&&", ";"})


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_its_blocks_can_be_read(page: Path) -> None:
    for language, block in _BLOCK.findall(page.read_text()):
        match language:
            case "python":
                compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            case "toml":
                tomllib.loads(block)
            case "json":
                json.loads(block)
            case _:
                assert language in {"mermaid", "sh", "console", "text", "ini", "yaml"}, language


def typed(text: str) -> Iterator[list[str]]:
    """Yield the commands of a page, as words up to the shell's first."""
    joined = re.sub(r" *\\\n +", " ", text)
    for line in _TYPED.findall(joined):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # the text continues in the next line
            words = line.split()
        end = next((at for at, word in enumerate(words) if word in _SHELL), len(words))
        yield words[:end]


def faults(words: list[str]) -> Iterator[str]:
    """Yield the subcommands and options of a command that do not exist."""
    command: click.Command = _COMMANDS[words[0]]
    for word in words[1:]:
        if isinstance(command, click.Group) and not word.startswith("-"):
            if word.isupper() or word == "...":
                return
            found = command.get_command(click.Context(command), word)
            if found is None:
                yield f"{' '.join(words)}: no command {word}"
                return
            command = found
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    for word in words[1:]:
        if re.match(r"--\w", word) and word.partition("=")[0] not in known:
            yield f"{' '.join(words)}: no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_its_commands_exist(page: Path) -> None:
    assert [fault for words in typed(page.read_text()) for fault in faults(words)] == []


def test_what_is_found_and_refused() -> None:
    page = "haclient no\n\n    $ haclient sned a | jq\n    .make-venv/bin/broker-stub pair \\\n      --nope\n"
    words = list(typed(page))
    assert words == [["haclient", "sned", "a"], ["broker-stub", "pair", "--nope"]]
    assert [fault for each in words for fault in faults(each)] == [
        "haclient sned a: no command sned",
        "broker-stub pair --nope: no option --nope",
    ]
