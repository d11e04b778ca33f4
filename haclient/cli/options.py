"""Option types shared by commands, and errors that end a command with a message."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from haclient.analysis.io.session import AnalysisError, check_pyspark
from haclient.analysis.options import OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])

# 2 is click's own exit code, for usage.
BROKEN, UNUSABLE = 1, 3

_PORTS = {"spark": 7077, "sc": 15002}  # Spark's defaults
_REACH = 10.0  # s, for a TCP connection


class Parsed(click.ParamType[Any]):
    """An option value, parsed by a function of ``haclient.analysis.options``."""

    def __init__(self, option: Option) -> None:
        self.name = option.metavar.lower()
        self._read = option.read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the value, or fail with the reason."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Folder(Parsed):
    """A folder, which a shell completes as a directory."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave the completion to the shell."""
        return [CompletionItem(incomplete, type="dir")]


def shared_options(command: F) -> F:
    """Add the options that the program for ``spark-submit`` also has."""
    for option in reversed(OPTIONS):
        command = click.option(
            option.name,
            metavar=option.metavar,
            type=(Folder if option.metavar == "DIR" else Parsed)(option),
            help=option.help,
            default=option.default,
            show_default=option.default is not None,
            multiple=option.multiple,
        )(command)
    return command


class Setting(click.ParamType[tuple[str, str]]):
    """An option of Spark, as ``key=value``."""

    name = "key=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split key and value."""
        if isinstance(value, tuple):
            return value
        key, sign, text = value.partition("=")
        if not sign or not key.startswith("spark."):
            self.fail(f"{value!r} is not like spark.executor.memory=4g", param, ctx)
        return key, text


class UnusableError(click.ClickException):
    """The input or this machine cannot be used."""

    exit_code = UNUSABLE


@contextmanager
def plain_errors() -> Iterator[None]:
    """Convert errors of the analysis to error messages with an exit code.

    pyspark is checked first, because the modules used inside the context import it.
    """
    try:
        check_pyspark()
        with _spark_errors():
            yield
    except AnalysisError as error:
        raise UnusableError(str(error)) from error


@contextmanager
def _spark_errors() -> Iterator[None]:
    from pyspark.errors import PySparkException  # noqa: PLC0415  # pyspark may be missing

    try:
        yield
    except PySparkException as error:
        raise UnusableError(f"Spark: {_first_line(str(error))}") from error


def _first_line(text: str) -> str:
    """Return the essential line of an error; gRPC has it in the line ``details``."""
    lines = [line.strip() for line in text.strip().splitlines()] or ["no reason given"]
    return next((line for line in lines if line.startswith("details = ")), lines[0])


def check_reachable(url: str | None) -> None:
    """Check that a server listens at ``spark://host:port`` or ``sc://host:port``; Spark tries for minutes.

    :raises UnusableError: if none does.
    """
    parts = urlsplit(url or "")
    if parts.scheme not in {"spark", "sc"} or parts.hostname is None or "," in parts.netloc:
        return
    try:
        port = parts.port or _PORTS[parts.scheme]
        socket.create_connection((parts.hostname, port), _REACH).close()
    except (OSError, ValueError) as error:
        raise UnusableError(f"{url} cannot be reached: {error}") from error
