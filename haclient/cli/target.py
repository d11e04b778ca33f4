"""The cluster for a command: its URL, options and credentials.

Rules
-----
* The URL is the argument, or the variable ``HACLIENT_URL``.  Other variables with this prefix apply as in
  ``ConnectionFactory.from_env``.  ``-o`` overrides all of them.
* Credentials in a URL argument override credentials of the environment, which are for another cluster.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import click

from haclient import aio, configuration
from haclient.cli.exit_codes import client_errors
from haclient.cluster_url.option_values import BOOLEAN
from haclient.cluster_url.options import ABOUT, OPTION_NAMES, Options, with_overrides
from haclient.cluster_url.url import ClusterURL
from haclient.configuration import Configuration
from haclient.events import Event
from haclient.factory.factory_core import FactoryCore
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "HACLIENT_URL"
_CREDENTIALS = ("HACLIENT_USER", "HACLIENT_PASSWORD", "HACLIENT_PASSWORD_FILE", "HACLIENT_TOKEN_FILE")
_MISSING = f"the URL is missing: write it, as in amqp://broker-a,broker-b, or set {VARIABLE}"
_MOST_ARGUMENTS = 2
# A URL, if given, and an address.
_Node = tuple[str | None, str]
_URL = re.compile(r"[a-z+]+://|amqp:|failover:", re.IGNORECASE)

URL_ARGUMENT = click.argument("url", metavar="[URL]", required=False)
ROUTE_ARGUMENT = click.argument("route", metavar="[URL] FROM [URL] TO", nargs=-1, required=True)
ADDRESS_ARGUMENT = click.argument("url_and_address", metavar="[URL] ADDRESS", nargs=-1, required=True)


class OverrideType(click.ParamType[tuple[str, str]]):
    """An override of a cluster URL's option, as ``name=value``."""

    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split name and value; the name is checked later."""
        if isinstance(value, tuple):
            return value
        name, sign, text = value.partition("=")
        if not sign or not name:
            self.fail(f"{value!r} is not like deadline=30", param, ctx)
        return name, text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the names of options, and their values if they can be listed."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell needs it

        from haclient.command_line.completion import NO_SPACE  # noqa: PLC0415

        found = []
        for name, about in ABOUT.items():
            values = about.kind.choices or (("true", "false") if about.kind is BOOLEAN else ())
            texts = [f"{name}={value}" for value in values] or [f"{name}="]
            kind = "plain" if values else NO_SPACE
            found += [CompletionItem(text, kind) for text in texts if text.startswith(incomplete)]
        return found


OVERRIDES = click.option(
    "-o",
    "--option",
    "overrides",
    type=OverrideType(),
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the URL, which wins over what is written there: -o deadline=30.  Can be repeated.",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster with its connection parameters.

    :param text: the URL as it was written, in an argument or a variable.
    :param from_argument: whether the URL was an argument.
    """

    configuration: Configuration
    overrides: Mapping[str, str]
    text: str | None = field(repr=False)
    from_argument: bool

    @property
    def url(self) -> ClusterURL:
        """The cluster URL."""
        return self.configuration.url

    def options(self) -> Options:
        """Return all options, from every source.

        :raises ClusterURLError: names the option at fault.
        """
        return self.configuration.make(_options, self.overrides)

    def factory(self, on_event: Callable[[Event], object]) -> aio.ConnectionFactory:
        """Create a factory of connections."""
        return self.configuration.make(aio.ConnectionFactory, {**self.overrides, "on_event": on_event})

    def encoded_factory(self, on_event: Callable[[Event], object]) -> FactoryCore:
        """Create a factory without an API, for messages already encoded; each is sent at least once."""
        given = {**self.overrides, "on_event": on_event, "delivery": "at-least-once"}
        return self.configuration.make(FactoryCore, given)

    def core(self) -> FactoryCore:
        """Create the factory without an API or telemetry, for commands that need its parts."""
        return self.configuration.make(FactoryCore, {**self.overrides, "telemetry": ""})


def _options(url: ClusterURL, **arguments: Any) -> Options:
    given = {name: value for name, value in arguments.items() if name in OPTION_NAMES}
    return with_overrides(url.options, **given)


def target_of(url: str | None, overrides: Sequence[tuple[str, str]]) -> Target:
    """Combine the arguments and the environment to a target.

    :raises click.UsageError: names the missing or wrong part and its source.
    """
    _log_defects_only()
    text = url or os.environ.get(VARIABLE)
    if not text and not os.environ.get("HACLIENT_CONFIG"):
        raise click.UsageError(_MISSING)
    with client_errors():
        found = configuration.from_env(_environment(url))
        target = Target(found, dict(overrides), text, url is not None)
        target.options()
        target.core()  # reads files, so that errors in them appear now
    return target


def _environment(url: str | None) -> Mapping[str, str]:
    """Return the environment, with the URL of the argument."""
    if url is None:
        return os.environ
    parsed: Any = ClusterURL.parse(url)  # parsed here, so that an error does not name a variable
    hidden = _CREDENTIALS if any(seed.user is not None for seed in parsed.seeds) else ()
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    return cast("Mapping[str, str]", {**variables, VARIABLE: parsed})


class _Defects(logging.Handler):
    """Prints the client's log records that have a traceback to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            click.echo(self.format(record), err=True)


def _log_defects_only() -> None:
    """Suppress other log records, because the commands print the same events."""
    logger = get_logger("haclient")
    if not logger.handlers:
        logger.addHandler(_Defects())


def divide(url_and_address: Sequence[str]) -> tuple[str | None, str]:
    """Split ``[URL] ADDRESS`` into the optional URL and the address."""
    if len(url_and_address) > _MOST_ARGUMENTS:
        raise click.UsageError(f"there are {len(url_and_address)} arguments: write [URL] ADDRESS")
    *url, address = url_and_address
    _check_address("ADDRESS", address, first=not url)
    return (url[0] if url else None), address


def divide_route(arguments: Sequence[str]) -> tuple[_Node, _Node]:
    """Split ``[URL] FROM [URL] TO`` into two nodes; a single leading URL is for both."""
    route: tuple[_Node, _Node]
    match tuple(arguments):
        case (source, target):
            route = (None, source), (None, target)
        case (source, url, target) if _URL.match(url):
            route = (None, source), (url, target)
        case (url, source, target):
            route = (url, source), (url, target)
        case (url, source, other, target):
            route = (url, source), (other, target)
        case _:
            raise click.UsageError(f"arguments: {len(arguments)}; write [URL] FROM [URL] TO")
    for name, node in zip(("FROM", "TO"), route, strict=True):
        _check_address(name, node[1], first=node[0] is None)
    return route


def _check_address(name: str, address: str, *, first: bool) -> None:
    """Refuse an empty address, or a URL in its place.

    :param first: whether no URL precedes it.
    """
    if not address:
        raise click.UsageError(f"{name} is empty: it names a queue or another node")
    if first and _URL.match(address):
        raise click.UsageError(f"{name} is missing: the queue, after the URL")
