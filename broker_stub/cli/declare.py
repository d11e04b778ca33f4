"""``queue``, ``exchange`` and ``binding``: declare the wiring of the cluster at its primary."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from broker_stub.amqp.node_names import BINDING_TYPE, EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.cli.member_requests import JSON, MEMBERS, MemberRequests, finish, flatten, request_options
from broker_stub.management_client import AdminClient
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.options import DEAD_LETTER_ADDRESS, DELIVER, MAX_DELIVERY_COUNT, SELECTOR, Deliver
from broker_stub.queueing.site_state import SITE_PROPERTY, SiteMode
from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.groups import Group
from haclient.command_line.signals import run
from haclient.printable.lines import echo_line

# The response to a change waits for the backups: the primary drops a stalled one after ten seconds.
_TIMEOUT = 30.0

_Members = tuple[list[Endpoint], ...]
_Facts = dict[str, Any]

_REPLICATE = click.option(
    "--replicate",
    type=click.Choice([str(mode) for mode in Replicate]),
    help="What is replicated to the backups.  [default: the member's --replicate]",
)
_KEY = click.option("--key", default="", help="The routing key, or a pattern of it.")


@click.group(cls=Group)
def queue() -> None:
    """Add, list and remove queues."""


@click.group(cls=Group)
def exchange() -> None:
    """Add, list and remove exchanges."""


@click.group(cls=Group)
def binding() -> None:
    """Bind queues to exchanges, list and remove bindings."""


def _list(group: click.Group, kind: str, help_text: str) -> None:
    """Add the command ``list`` to a group."""

    @group.command("list", help=help_text)
    @MEMBERS
    @JSON
    @request_options()
    def list_all(*, members: _Members, as_json: bool, requests: MemberRequests) -> None:
        _run(requests, members, lambda client: _all(client, kind), as_json=as_json)


def _remove_by_name(group: click.Group, kind: str, help_text: str) -> None:
    """Add the command ``remove`` to a group whose objects have a name."""

    @group.command("remove", help=help_text)
    @click.argument("name")
    @MEMBERS
    @JSON
    @request_options(timeout=_TIMEOUT)
    def remove(*, name: str, members: _Members, as_json: bool, requests: MemberRequests) -> None:
        _run(requests, members, lambda client: _remove(client, kind, name), as_json=as_json)


# -- queues -----------------------------------------------------------------------------------------


@queue.command("add")
@click.argument("name")
@MEMBERS
@_REPLICATE
@click.option(
    "--site-replicate",
    type=click.Choice([str(mode) for mode in SiteMode]),
    help="What is replicated to another site.  [default: none]",
)
@click.option(
    "--max-delivery-count",
    type=click.IntRange(min=0),
    help="Failed deliveries after which a message is a dead letter.  [default: 0, no limit]",
)
@click.option(
    "--dead-letter-address",
    help="The queue or exchange that gets rejected messages, and those at the limit.  [default: none]",
)
@click.option(
    "--selector", help="What it gets from the exchanges that it is bound to.  [default: everything]"
)
@click.option(
    "--deliver",
    type=click.Choice([str(when) for when in Deliver]),
    help="Deliver when a message is safe, or at once: a failover may take it back.  [default: committed]",
)
@JSON
@request_options(timeout=_TIMEOUT)
def add_queue(
    *,
    name: str,
    members: _Members,
    replicate: str | None,
    site_replicate: str | None,
    max_delivery_count: int | None,
    dead_letter_address: str | None,
    selector: str | None,
    deliver: str | None,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Add a queue."""
    attributes = _given(
        **{
            "replicate": replicate,
            SITE_PROPERTY: site_replicate,
            MAX_DELIVERY_COUNT: max_delivery_count,
            DEAD_LETTER_ADDRESS: dead_letter_address,
            SELECTOR: selector,
            DELIVER: deliver,
        }
    )
    _run(requests, members, lambda client: client.create(QUEUE_TYPE, name, **attributes), as_json=as_json)


_list(queue, QUEUE_TYPE, "Show every queue, with its depth.")
_remove_by_name(queue, QUEUE_TYPE, "Remove a queue with all messages in it.")


# -- exchanges --------------------------------------------------------------------------------------


@exchange.command("add")
@click.argument("name")
@MEMBERS
@click.option("--type", "kind", type=click.Choice(["direct", "fanout", "topic"]), required=True)
@_REPLICATE
@JSON
@request_options(timeout=_TIMEOUT)
def add_exchange(
    *, name: str, members: _Members, kind: str, replicate: str | None, as_json: bool, requests: MemberRequests
) -> None:
    """Add an exchange."""
    attributes = _given(type=kind, replicate=replicate)
    _run(requests, members, lambda client: client.create(EXCHANGE_TYPE, name, **attributes), as_json=as_json)


_list(exchange, EXCHANGE_TYPE, "Show every exchange.")
_remove_by_name(exchange, EXCHANGE_TYPE, "Remove an exchange with its bindings.")


# -- bindings ---------------------------------------------------------------------------------------


@binding.command("add")
@click.argument("exchange_name", metavar="EXCHANGE")
@click.argument("queue_name", metavar="QUEUE")
@MEMBERS
@_KEY
@JSON
@request_options(timeout=_TIMEOUT)
def add_binding(
    *,
    exchange_name: str,
    queue_name: str,
    members: _Members,
    key: str,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Route messages that match the key from the exchange to the queue."""
    name, ends = _ends(exchange_name, queue_name, key)
    _run(requests, members, lambda client: client.create(BINDING_TYPE, name, **ends), as_json=as_json)


_list(binding, BINDING_TYPE, "Show every binding.")


@binding.command("remove")
@click.argument("exchange_name", metavar="EXCHANGE")
@click.argument("queue_name", metavar="QUEUE")
@MEMBERS
@_KEY
@JSON
@request_options(timeout=_TIMEOUT)
def remove_binding(
    *,
    exchange_name: str,
    queue_name: str,
    members: _Members,
    key: str,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Remove the binding with this exchange, queue and key."""
    name, ends = _ends(exchange_name, queue_name, key)
    _run(requests, members, lambda client: _remove(client, BINDING_TYPE, name, ends), as_json=as_json)


# -- shared -----------------------------------------------------------------------------------------


def _run(
    requests: MemberRequests,
    members: _Members,
    call: Callable[[AdminClient], Awaitable[_Facts | list[_Facts]]],
    *,
    as_json: bool,
) -> None:
    answer = run(requests.at_primary(flatten(members), call))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        rows = answer.result if isinstance(answer.result, list) else [answer.result]
        for row in rows:
            echo_line(_line(row))
    finish(answer)


async def _all(client: AdminClient, kind: str) -> list[_Facts]:
    return [facts for facts in await client.query(kind) if not facts.get("temporary")]


async def _remove(client: AdminClient, kind: str, name: str, ends: Mapping[str, str] | None = None) -> _Facts:
    await client.delete(kind, name, **(ends or {}))
    return {"removed": name}


def _ends(exchange_name: str, queue_name: str, key: str) -> tuple[str, dict[str, str]]:
    return f"{exchange_name}/{queue_name}/{key}", {
        "exchange": exchange_name,
        "queue": queue_name,
        "key": key,
    }


def _given(**attributes: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in attributes.items() if value is not None}


def _line(facts: _Facts) -> str:
    """Return one line for people, without the attributes that only programs need."""
    if "removed" in facts:
        return f"removed {facts['removed']}"
    if "queue" in facts:
        return f"{facts['exchange']} -> {facts['queue']}, key {facts['key']!r}"
    if "type" in facts:
        return f"{facts['name']}: {facts['type']}, replicate {facts['replicate']}"
    return f"{facts['name']}: {facts['depth']} messages, replicate {facts['replicate']}"
