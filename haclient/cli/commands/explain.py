"""``haclient explain``: the meaning of a cluster URL, without connections except to DNS."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click
from rich.table import Table

from haclient.cli.exit_codes import client_errors, examples
from haclient.cli.formatting import wide_console
from haclient.cli.target import OVERRIDES, URL_ARGUMENT, VARIABLE, Target, target_of
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.option_values import as_text
from haclient.cluster_url.options import Options
from haclient.cluster_url.seed import MASK, Credentials
from haclient.cluster_url.url import ClusterURL, second_site
from haclient.command_line.signals import run
from haclient.discovery.attempt_summary import endpoint_text
from haclient.discovery.evidence import Resolved
from haclient.discovery.topology import Topology, update
from haclient.engine.sasl import claims
from haclient.engine.sasl.token import Token
from haclient.resolver.resolve import ResolutionError, Resolver

_DEFAULTS = {each.name: each.default for each in fields(Options)}

_EXAMPLES = examples(
    "haclient explain amqps://user:password@broker-a,broker-b/?deadline=60",
    "haclient explain 'failover:(amqp://a,amqp://b)?failover.maxReconnectDelay=5000'",
    "haclient explain amqp+srv://orders.example -o nameserver=127.0.0.1:5353",
    "haclient explain --json | jq .order                # the URL is in HACLIENT_URL",
)


@dataclass(frozen=True, slots=True)
class _Answers:
    """The answers of DNS.

    :param problems: reasons for names without an address.
    """

    topology: Topology
    problems: Mapping[Endpoint, str]


@click.command(epilog=_EXAMPLES)
@URL_ARGUMENT
@OVERRIDES
@click.option("--resolve/--no-resolve", default=True, show_default=True, help="Ask DNS for the names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(url: str | None, overrides: Sequence[tuple[str, str]], *, resolve: bool, as_json: bool) -> None:
    """Explain a cluster URL: its members, their addresses, the order of attempts, every option.

    For each option: its value, its default, and its source.  Sources are the URL (with the name used
    there), an argument (-o), a variable (HACLIENT_...) and a file.  The command connects to no member; it
    only looks up names.  Passwords are never shown.
    """
    target = target_of(url, overrides)
    with client_errors():
        options = target.options()
        answers = run(_ask(target.url, options)) if resolve else _unasked(target.url, options)
        document = _document(target, options, answers)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        _show(document, options)


def _unasked(url: ClusterURL, options: Options) -> _Answers:
    seeds = tuple(seed.endpoint for seed in url.seeds)
    other_site = second_site(options.dr, tls=seeds[0].tls)
    return _Answers(Topology(seeds=seeds, pushed_members=options.pushed_members, dr=other_site), {})


async def _ask(url: ClusterURL, options: Options) -> _Answers:
    topology = _unasked(url, options).topology
    problems: dict[Endpoint, str] = {}
    resolver = Resolver(nameserver=options.nameserver, timeout=options.dns_timeout)
    names = topology.names()
    asked = (resolver.resolve(name, srv=url.srv and name in topology.seeds) for name in names)
    for name, found in zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(found, ResolutionError):
            problems[name] = str(found)
        elif isinstance(found, BaseException):
            raise found
        else:
            topology = update(topology, Resolved(name, found))
    await resolver.close()
    return _Answers(topology, problems)


# -- facts ----------------------------------------------------------------------------------------


def _document(target: Target, options: Options, answers: _Answers) -> dict[str, Any]:
    order, everybody = answers.topology.candidates(), answers.topology.candidates(other_site=True)
    return {
        "url": str(target.url),
        "from": _source(target),
        "form": _form(target),
        "members": [_member(seed, answers) for seed in target.url.seeds],
        "credentials": _credentials(target),
        "order": [endpoint_text(endpoint) for endpoint in order],
        "other_site": [endpoint_text(endpoint) for endpoint in everybody if endpoint not in order],
        "options": {name: _option(name, target, options) for name in _DEFAULTS},
    }


def _source(target: Target) -> str:
    return "argument" if target.from_argument else target.configuration.origins.get("url", VARIABLE)


def _form(target: Target) -> str:
    text = (target.text or str(target.url)).lower()
    if text.startswith("failover:"):
        return "failover list, as Qpid JMS and ActiveMQ write it"
    if target.url.srv:
        return "one name whose SRV records list the members"
    if not text.startswith(("amqp://", "amqps://", "amqp+ssl://")):
        return "addresses as Qpid C++ writes them"
    return "list of members" if len(target.url.seeds) > 1 else "one member, or an address that moves"


def _member(seed: Any, answers: _Answers) -> dict[str, Any]:
    endpoint = seed.endpoint
    return {
        "endpoint": str(endpoint),
        "tls": endpoint.tls,
        "user": seed.user,
        "password": None if seed.password is None else MASK,
        "addresses": [str(found) for found in answers.topology.addresses(endpoint)],
        "problem": answers.problems.get(endpoint),
    }


def _credentials(target: Target) -> dict[str, Any]:
    """Return credentials for all members, if any: they override those in the URL."""
    found = target.configuration
    given = found.arguments.get("credentials")
    known = given() if callable(given) else given
    if isinstance(known, Token):
        return _token(known, found.origins.get("token_file"))
    if not isinstance(known, Credentials):
        return {"user": None, "password": None, "from": "URL"}
    password = None if known.password is None else MASK
    return {"user": known.user, "password": password, "from": found.origins.get("user")}


def _token(token: Token, origin: str | None) -> dict[str, Any]:
    about = claims.describe(token.value, time.time()).removeprefix("the token has: ") or "no JWT"
    return {"user": token.user, "password": None, "token": about, "from": origin}


def _option(name: str, target: Target, options: Options) -> dict[str, Any]:
    default = _DEFAULTS[name]
    return {
        "value": as_text(getattr(options, name)),
        "default": as_text(default),
        "from": _origin(name, target),
    }


def _origin(name: str, target: Target) -> str:
    if name in target.overrides:
        return "argument"
    if name in target.configuration.origins:
        return target.configuration.origins[name]
    written = dict(target.url.written).get(name)
    if written is None:
        return "default"
    return "URL" if written == name else f"URL, as {written}"


# -- for people -----------------------------------------------------------------------------------


def _show(document: Mapping[str, Any], options: Options) -> None:
    console = wide_console()
    console.print(f"{document['url']}\n  {document['form']}, from {document['from']}\n")
    console.print("members")
    for member in document["members"]:
        console.print(f"  {_member_text(member)}")
    credentials = document["credentials"]
    if "token" in credentials:
        console.print(f"  all of them: a token, from {credentials['from']}: {credentials['token']}")
    elif credentials["user"] is not None:
        console.print(f"  all of them: {_who(credentials)}, from {credentials['from']}")
    console.print("\norder of attempts")
    for number, endpoint in enumerate(document["order"], start=1):
        console.print(f"  {number}. {endpoint}")
    console.print(_pace(options))
    if document["other_site"]:
        console.print(f"  after {options.dr_after:g} s also: {', '.join(document['other_site'])}")
    console.print("\noptions")
    console.print(_table(document["options"]))


def _member_text(member: Mapping[str, Any]) -> str:
    found = ", ".join(member["addresses"])
    where = f" -> {found}" if found else f": {member['problem']}" if member["problem"] else ""
    who = "" if member["user"] is None else f", {_who(member)}"
    return f"{member['endpoint']}{who}{where}"


def _who(member: Mapping[str, Any]) -> str:
    password = "no password" if member["password"] is None else f"password {member['password']}"
    return f"user {member['user']}, {password}"


def _pace(options: Options) -> str:
    adaptive = options.backoff_strategy == "adaptive"
    when = (
        "after a loss, and where members are overloaded," if adaptive else "after a round without a primary"
    )
    return (
        f"  each at once when the one before fails, beside it when that hangs for {options.stagger:g} s;\n"
        f"  at most {options.max_dials} at a time, each for {options.attempt_timeout:g} s; "
        f"members that others announce: {options.pushed_members};\n"
        f"  {when} a delay: random, at most {options.backoff_base:g} s at first, growing "
        f"{options.backoff_factor:g} times to {options.backoff_max:g} s"
    )


def _table(options: Mapping[str, Mapping[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("  name", "value", "default", "from"):
        table.add_column(heading, no_wrap=True)
    for name, option in options.items():
        style = "dim" if option["from"] == "default" else None
        table.add_row(f"  {name}", option["value"] or "''", option["default"], option["from"], style=style)
    return table
