"""``haclient help``: the meaning and remedy of an error, without a network."""

from __future__ import annotations

import difflib
import textwrap

import click

from haclient.cli.exit_codes import examples
from haclient.error_catalog.entries import ENTRIES, Entry

_EXAMPLES = examples("haclient help no-credit", "haclient help            # all names")
_WIDTH = 80
# Keep the names of commands and options whole.
_WRAPPER = textwrap.TextWrapper(
    _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
)


def _complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*ENTRIES, *_commands(context)) if name.startswith(incomplete)]


def _commands(context: click.Context) -> list[str]:
    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    return parent.command.list_commands(parent)


@click.command("help", epilog=_EXAMPLES)
@click.argument("name", required=False, shell_complete=_complete)
@click.pass_context
def explain_code(context: click.Context, name: str | None) -> None:
    """Explain an error by its name, such as no-credit: its meaning and its remedy.

    Commands print the name in the last line of an error, and exceptions have it as `code`.  Without NAME all
    names are listed.  The name of a command prints the help of that command.
    """
    if name is None:
        _list()
    elif name in ENTRIES:
        _show(name, ENTRIES[name])
    else:
        click.echo(_help_of_command(context, name))


def _list() -> None:
    formatter = click.HelpFormatter(width=_WIDTH)
    formatter.write_dl([(name, entry.summary.replace("`", "")) for name, entry in ENTRIES.items()])
    click.echo(formatter.getvalue(), nl=False)


def _show(name: str, entry: Entry) -> None:
    click.echo(f"{name}\n")
    for text in (entry.meaning, f"Do: {entry.remedy}"):
        click.echo(_WRAPPER.fill(text.replace("`", "")) + "\n")
    click.echo(f"  docs/errors.md#{name}")


def _help_of_command(context: click.Context, name: str) -> str:
    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    if command is not None:
        return command.get_help(click.Context(command, info_name=name, parent=parent))
    names = [*ENTRIES, *_commands(context)]
    near = difflib.get_close_matches(name, names, n=1)
    suggestion = f"; did you mean {near[0]}?" if near else "; haclient help lists the names"
    raise click.UsageError(f"there is no error or command {name!r}{suggestion}")


help = explain_code  # noqa: A001 - the group finds a command by the name of its module
