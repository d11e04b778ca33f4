"""Options, passwords and logging that several commands share."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from broker_stub.admission.user_file import UserFile, UserFileError

PASSWORD_VARIABLE = "BROKER_STUB_PASSWORD"  # noqa: S105 - a name, not a password

ANONYMOUS = click.option(
    "--anonymous/--no-anonymous",
    default=None,
    help="Let clients in that have no name.  [default: only without --users]",
)
LINK_USERS = click.option(
    "--link-user",
    "link_users",
    metavar="NAME",
    multiple=True,
    help="A user who may receive the events of this site's queues, for another site (repeat).",
)
LINK_PASSWORDS = click.option(
    "--link-passwords",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of the files that links to other sites may read their passwords from.",
)
LOOP = click.option(
    "--loop",
    type=click.Choice(["auto", "asyncio", "uvloop"]),
    default="auto",
    show_default=True,
    help="Event loop; auto is uvloop where it is installed.",
)
LOG_LEVEL = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log to standard error.",
)


def start_logging(level: str) -> None:
    """Log to standard error."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def read_password(path: Path | None) -> str | None:
    """Return the cluster-admin's password, from a file or the environment; ``None`` without either."""
    return path.read_text().strip() if path is not None else os.environ.get(PASSWORD_VARIABLE) or None


def read_users(path: Path) -> UserFile:
    """Read a file of users.

    :raises click.UsageError: with the number of an invalid line.
    """
    try:
        return UserFile(path)
    except UserFileError as error:
        raise click.UsageError(f"--users: {error}") from None


def check_arbiter(url: str) -> None:
    """Refuse an arbiter that members in different processes cannot share.

    :raises click.UsageError: with the reason.
    """
    if url == "memory:":
        raise click.UsageError("--arbiter memory: exists in one process only: every member would win")
    # Imported here: ``pair`` leaves opening the arbiter to its members.
    from broker_stub.election.arbiter import open_arbiter  # noqa: PLC0415

    try:
        open_arbiter(url)
    except ValueError as error:
        raise click.UsageError(f"--arbiter: {error}") from error


def without_secrets(arbiter: str) -> str:
    """Return the URL of an arbiter without credentials before an ``@``."""
    kind, colon, rest = arbiter.partition(":")
    hosts, at, host = rest.rpartition("@")
    return f"{kind}{colon}...@{host}" if kind == "zookeeper" and hosts and at else arbiter


def cluster_url(text: str) -> str:
    """Return the cluster URL for a URL or a list of members."""
    return f"failover:({text})" if text.count("://") > 1 and not text.startswith("failover:") else text
