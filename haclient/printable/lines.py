"""Printing of lines for people."""

from __future__ import annotations

import click

from haclient.printable.text import printable


def echo_line(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error if ``err``."""
    click.echo(printable(text), err=err)
