"""Sends the commands' requests to running members, and finds the primary among them.

Rules
-----
* The primary is the member whose status says that it serves; of two, the one with the higher generation.
* An unreachable member is reported, and the requests to the other members continue.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import click

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.cli.options import PASSWORD_VARIABLE, read_password
from broker_stub.command_options import ADDRESS, FILE, REFUSED, UNREACHABLE
from broker_stub.management_client import (
    AdminClient,
    MemberRefusedError,
    MemberStatus,
    MemberUnreachableError,
)
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.lines import echo_line

T = TypeVar("T")

# Seconds for a status on a busy machine; the request that follows may take longer.
STATUS_TIMEOUT = 5.0

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class MembersType(click.ParamType[list[Endpoint]]):
    """A member, or the URL of a cluster: ``amqp://a:5672,b:5672``."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Endpoint]:
        """Return every member of the URL."""
        scheme, separator, hosts = str(value).rpartition("://")
        return [ADDRESS.convert(f"{scheme}{separator}{host}", param, ctx) for host in hosts.split(",")]


MEMBERS = click.argument("members", metavar="URL...", type=MembersType(), nargs=-1, required=True)
"""The addresses of the cluster: one member or more, or lists of them."""


def flatten(members: Iterable[list[Endpoint]]) -> list[Endpoint]:
    """Return all members of several URLs, without duplicates."""
    return list(dict.fromkeys(address for group in members for address in group))


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer of one member, or the reason for its absence.

    :param code: the exit code; 0 if there is a result.
    """

    address: Endpoint
    result: T | None = None
    error: str = ""
    code: int = 0

    def plain(self) -> Any:
        """Return the answer for ``--json``."""
        if self.result is None:
            return {"address": self.address.authority, "error": self.error}
        return self.result.facts if isinstance(self.result, MemberStatus) else self.result


@dataclass(frozen=True, slots=True)
class MemberRequests:
    """Sends requests to members.

    :param timeout: seconds for the connection to a member, and for each call.
    """

    credentials: Credentials
    timeout: float
    tls_ca: Path | None

    async def one(self, address: Endpoint, call: Callable[[AdminClient], Awaitable[T]]) -> Answer[T]:
        """Send a request to one member."""
        tls = ssl.create_default_context(cafile=str(self.tls_ca)) if self.tls_ca else None
        try:
            client = await AdminClient.connect(address, self.credentials, timeout=self.timeout, tls=tls)
            async with client:
                return Answer(address, await call(client))
        except MemberRefusedError as error:
            return Answer(address, error=_named(address, error), code=REFUSED)
        except MemberUnreachableError as error:
            return Answer(address, error=_named(address, error), code=UNREACHABLE)

    def with_timeout_at_most(self, timeout: float) -> MemberRequests:
        """Return the same requests with a timeout of at most ``timeout`` seconds."""
        return replace(self, timeout=min(self.timeout, timeout))

    async def status(self, addresses: Iterable[Endpoint]) -> list[Answer[MemberStatus]]:
        """Read the status of several members concurrently."""
        return await asyncio.gather(*(self.one(address, AdminClient.status) for address in addresses))

    async def everywhere(self, addresses: Iterable[Endpoint]) -> list[Answer[MemberStatus]]:
        """Read the status of these members and of all members that they know."""
        answers: dict[Endpoint, Answer[MemberStatus]] = {}
        unasked = list(addresses)
        while unasked:
            for answer in await self.status(unasked):
                answers[answer.address] = answer
            known = [other for answer in answers.values() for other in _known_to(answer)]
            unasked = [address for address in dict.fromkeys(known) if address not in answers]
        members: dict[tuple[object, ...], Answer[MemberStatus]] = {}
        for answer in answers.values():
            members.setdefault(_identity(answer), answer)
        return list(members.values())

    async def at_primary(
        self, addresses: Iterable[Endpoint], call: Callable[[AdminClient], Awaitable[T]]
    ) -> Answer[T]:
        """Send a request to the primary among these members and the members that they know."""
        answers = await self.with_timeout_at_most(STATUS_TIMEOUT).everywhere(addresses)
        primary = primary_of(answers)
        if primary is not None:
            return await self.one(primary, call)
        reasons = "; ".join(
            answer.error if answer.result is None else f"{answer.address} is {answer.result.role}"
            for answer in answers
        )
        code = UNREACHABLE if all(answer.code == UNREACHABLE for answer in answers) else REFUSED
        return Answer(answers[0].address, error=f"no primary found: {reasons}", code=code)


def primary_of(answers: Iterable[Answer[MemberStatus]]) -> Endpoint | None:
    """Return the member that serves in the highest generation."""
    serving = [
        (answer.result.generation, answer.address)
        for answer in answers
        if answer.result is not None and answer.result.serves
    ]
    return max(serving, key=lambda found: found[0])[1] if serving else None


def _known_to(answer: Answer[MemberStatus]) -> list[Endpoint]:
    """Return the members that a member knows; they use TLS if it does."""
    if answer.result is None:
        return []
    facts = answer.result.facts
    texts = [*facts["members"], *([facts["primary"]] if facts["primary"] else [])]
    plain = (parse_endpoint(text) for text in texts)
    return [Endpoint(found.host, found.port, tls=answer.address.tls) for found in plain]


def _identity(answer: Answer[MemberStatus]) -> tuple[object, ...]:
    """Return a key that is equal for two addresses of one member."""
    if answer.result is None:
        return (answer.address,)
    facts = answer.result.facts
    return facts["name"], facts["address"], facts["pid"]


def _named(address: Endpoint, error: Exception) -> str:
    text = str(error)
    return text if str(address) in text else f"{address}: {text}"


def request_options(
    *, timeout: float = STATUS_TIMEOUT
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for user, password, TLS and timeout; the command receives them as ``requests``.

    :param timeout: default of ``--timeout``, in seconds.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_requests(
            *, user: str, password_file: Path | None, timeout: float, tls_ca: Path | None, **rest: Any
        ) -> None:
            password = read_password(password_file)
            if not password:
                raise click.UsageError(f"give --password-file, or set {PASSWORD_VARIABLE}")
            command(
                requests=MemberRequests(Credentials(user=user, password=password), timeout, tls_ca), **rest
            )

        decorated: Callable[..., None] = with_requests
        for option in (
            click.option(
                "--tls-ca", type=FILE, help="Certificates of the authority that signs the members' (PEM)."
            ),
            click.option(
                "--timeout", type=float, default=timeout, show_default=True, help="Seconds for a member."
            ),
            click.option(
                "--password-file",
                type=FILE,
                help=f"File with the cluster-admin's password; or set ${PASSWORD_VARIABLE}.",
            ),
            click.option("--user", default=DEFAULT_ADMIN, show_default=True),
        ):
            decorated = option(decorated)
        return decorated

    return wrap


def finish(answer: Answer[Any]) -> NoReturn:
    """Print the answer's error to standard error and exit with its code."""
    if answer.error:
        echo_line(answer.error, err=True)
    sys.exit(answer.code)
