"""What the commands have in common: option types, and errors that are a sentence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import urlsplit

import click

from haclient.analysis import thresholds
from haclient.analysis.io.session import AnalysisError, check_pyspark
from haclient.telemetry.rfc3339 import moment

# 2 is click's own, for usage.
BROKEN, UNUSABLE = 1, 3

_PORTS = {"spark": 7077, "sc": 15002}  # Spark's defaults
_REACH = 10.0  # s, for a TCP connection


class Moment(click.ParamType[datetime]):
    """A time in RFC 3339, or a date."""

    name = "time"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it; UTC where it has no time zone."""
        if isinstance(value, datetime):
            return value
        try:
            return moment(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Condition(click.ParamType[thresholds.Threshold]):
    """A condition on a figure."""

    name = "condition"

    def convert(
        self, value: str | thresholds.Threshold, param: click.Parameter | None, ctx: click.Context | None
    ) -> thresholds.Threshold:
        """Read it, or say what is wrong with it."""
        if isinstance(value, thresholds.Threshold):
            return value
        try:
            return thresholds.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Setting(click.ParamType[tuple[str, str]]):
    """An option of Spark's own."""

    name = "key=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Divide it."""
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
    """Turn what the analysis cannot work with into a sentence and an exit code.

    pyspark is looked for first: the modules that are used within import it.
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
    """What an error says; gRPC's says it in the line ``details``."""
    lines = [line.strip() for line in text.strip().splitlines()] or ["no reason given"]
    return next((line for line in lines if line.startswith("details = ")), lines[0])


def check_reachable(url: str | None) -> None:
    """See that something listens at ``spark://host:port`` or ``sc://host:port``; Spark would ask for minutes.

    :raises UnusableError: when nothing does.
    """
    parts = urlsplit(url or "")
    if parts.scheme not in {"spark", "sc"} or parts.hostname is None or "," in parts.netloc:
        return
    try:
        port = parts.port or _PORTS[parts.scheme]
        socket.create_connection((parts.hostname, port), _REACH).close()
    except (OSError, ValueError) as error:
        raise UnusableError(f"{url} cannot be reached: {error}") from error
