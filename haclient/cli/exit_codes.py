"""Exit codes of all commands, and the conversion of the client's errors to messages with exit codes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import click

from haclient.cli.options import UnusableError
from haclient.command_line import groups
from haclient.command_line.groups import AS_WRITTEN
from haclient.command_line.interrupts import INTERRUPTED, TERMINATED
from haclient.error_catalog.base import HaclientError

# Columns of the help, without its indentation.
_WIDTH = 76

DONE, LESS, USAGE, UNUSABLE, NO_PRIMARY, REFUSED = range(6)

CODES: Mapping[int, str] = MappingProxyType(
    {
        DONE: "done; also a stream without an end of its own that was interrupted",
        LESS: "less than was asked for: a broken threshold, no primary among the members, "
        "a message not accepted or not settled, fewer messages than --count",
        USAGE: "wrong usage: arguments, the URL, an option of it",
        UNUSABLE: "the input, or this machine, cannot be used",
        NO_PRIMARY: "no primary was found in time, at the start or after a loss",
        REFUSED: "the primary refuses: credentials, certificate, connection or address",
        INTERRUPTED: "ended by Ctrl-C before its own end",
        TERMINATED: "the same by SIGTERM",
    }
)


def codes_table() -> str:
    """Format the exit codes for ``--help``."""
    rows = (
        textwrap.fill(meaning, _WIDTH, initial_indent=f"  {code:<3}  ", subsequent_indent=" " * 7)
        for code, meaning in CODES.items()
    )
    return AS_WRITTEN + "\n".join(("Exit codes:", *rows))


def examples(*lines: str) -> str:
    """Format examples for ``--help``, with a reference to the exit codes."""
    return groups.examples("haclient", *lines)


class LessError(click.ClickException):
    """The command achieved less than was requested."""

    exit_code = LESS


class NoPrimaryError(click.ClickException):
    """No primary was found in time."""

    exit_code = NO_PRIMARY


class RefusedError(click.ClickException):
    """The primary refuses the connection or the link."""

    exit_code = REFUSED


@contextmanager
def client_errors() -> Iterator[None]:
    """Convert the client's exceptions to error messages with exit codes."""
    from haclient import errors  # noqa: PLC0415  # proton may be missing

    timeouts = (errors.SendTimeout, errors.LinkTimeout, errors.ReceiveTimeout)
    refusals = (
        errors.AuthenticationFailed,
        errors.TLSVerificationFailed,
        errors.ConnectionNotAllowed,
        errors.LinkRefused,
        errors.LinkClosed,
    )
    try:
        yield
    except errors.ClusterURLError as error:
        raise click.UsageError(_explained(error)) from error
    except errors.SaslUnavailableError as error:
        raise UnusableError(_explained(error)) from error
    except refusals as error:
        raise RefusedError(_explained(error)) from error
    except timeouts as error:
        kind = NoPrimaryError if error.code == errors.ConnectionGaveUp.code else LessError
        raise kind(_explained(error)) from error
    except errors.HaclientError as error:
        raise NoPrimaryError(_explained(error)) from error


def _explained(error: HaclientError) -> str:
    """Return the error text with the command for further help."""
    return f"{error}\nMore: haclient help {error.code}"
