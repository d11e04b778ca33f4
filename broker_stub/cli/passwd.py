"""``passwd``: makes a line of the file of users."""

from __future__ import annotations

import sys

import click

from broker_stub.admission import user_file
from haclient.command_line.groups import Command
from haclient.printable.lines import echo_line


@click.command(cls=Command)
@click.argument("name")
def passwd(name: str) -> None:
    """Print a line for NAME, for the file of --users.

    Asks for the password, or reads it from standard input. The line has keys of SCRAM-SHA-256, which do
    not reveal the password.
    """
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.read().removesuffix("\n")
    if not password:
        raise click.UsageError("the password is empty")
    try:
        echo_line(user_file.line(name, password))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
