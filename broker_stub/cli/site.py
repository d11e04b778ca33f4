"""``site``: take over from another site, and fail back.

Theory of operation
-------------------
A take-over stops applying events, because a later event of the source would be ordered after the changes of
local clients. Events missing at that moment are *in doubt*. The source, if reachable, knows the last sequence
that it sent.

A planned take-over waits until no event is in doubt, and then redirects the source's clients to this site.

A fail-back reverses the direction. The queues that followed now emit events, first for the messages in them,
and the former source follows. Its own content belongs to another history and is removed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import click

from broker_stub.amqp.node_names import EXCHANGE_TYPE, FOLLOWED_QUEUE_TYPE, QUEUE_TYPE
from broker_stub.cli.link import SOURCE_PASSWORD, links_of, source_options
from broker_stub.cli.member_requests import (
    JSON,
    MEMBERS,
    STATUS_TIMEOUT,
    Answer,
    MemberRequests,
    MembersType,
    finish,
    flatten,
    request_options,
)
from broker_stub.command_options import REFUSED
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode
from broker_stub.sites.inbound import APPLYING
from haclient.cluster_url.endpoint import Endpoint
from haclient.command_line.groups import Group
from haclient.command_line.signals import run
from haclient.printable.lines import echo_line

# The response to a change waits for the backups: the primary drops a stalled one after ten seconds.
_TIMEOUT = 30.0
# Seconds between two readings of the source's lag in a planned take-over.
_POLL_INTERVAL = 0.2

_Facts = dict[str, Any]


@click.group(cls=Group)
def site() -> None:
    """Take over from another site, and fail back."""


# -- promote ----------------------------------------------------------------------------------------


@site.command("promote")
@MEMBERS
@click.option("--source", type=MembersType(), help="Members of the source, to read what is in doubt.")
@click.option(
    "--planned",
    is_flag=True,
    help="Wait until no event is in doubt, up to --timeout; then demote the source and redirect its clients.",
)
@JSON
@request_options(timeout=_TIMEOUT)
def promote(
    *,
    members: tuple[list[Endpoint], ...],
    source: list[Endpoint] | None,
    planned: bool,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Stop applying events: from now on this site has its own history.

    Prints for each link the last applied sequence, and how many more events the source sent.
    """
    if planned and source is None:
        raise click.UsageError("--planned needs --source: the site to take over from")
    if planned and source is not None:
        answer = run(_planned_promotion(requests, flatten(members), source))
    else:
        answer = run(_promote(requests, flatten(members), source))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    for row in answer.result or () if not as_json else ():
        echo_line(_promoted_line(row))
    finish(answer)


async def _promote(
    requests: MemberRequests, members: list[Endpoint], source: list[Endpoint] | None
) -> Answer[list[_Facts]]:
    answer = await requests.at_primary(members, _applying(None, applying=False))
    source_events = None if source is None or answer.result is None else await _read_source(requests, source)
    rows = [_promoted(link, source_events) for link in answer.result or ()]
    return Answer(answer.address, None if answer.result is None else rows, answer.error, answer.code)


async def _planned_promotion(
    requests: MemberRequests, members: list[Endpoint], source: list[Endpoint]
) -> Answer[list[_Facts]]:
    """Take over when no event is in doubt, and redirect the source's clients to this site."""
    end = time.monotonic() + requests.timeout
    following = await requests.at_primary(members, _following)
    if following.result is None:
        return Answer(following.address, error=following.error, code=following.code)
    while True:
        events = await _read_source(requests, source)
        if events is not None and events["lag_events"] == 0:
            answer = await _promote(requests, members, source)
            if answer.result is None or _in_doubt(answer.result) == 0:
                break
            resumed = await requests.at_primary(members, _applying(following.result, applying=True))
            if resumed.error:
                return replace(
                    answer, error=f"promoted with events in doubt: {resumed.error}", code=resumed.code
                )
        if time.monotonic() > end:
            return Answer(following.address, error=_not_yet(events), code=REFUSED)
        await asyncio.sleep(_POLL_INTERVAL)
    if answer.result is None:
        return answer
    left = await requests.at_primary(source, lambda client: client.demote(answer.address))
    if left.result is None:
        return replace(answer, error=f"this site is promoted; {left.error}", code=left.code)
    rows = [_promoted(row, left.result.facts["site"].get("source")) for row in answer.result]
    late = _in_doubt(rows)
    error = f"{late} events arrived between the last reading and the end of the source" if late else ""
    return Answer(answer.address, rows, error, REFUSED if error else 0)


def _not_yet(events: _Facts | None) -> str:
    if events is None:
        return "the source does not answer what is in doubt: nothing has changed"
    lag = events["lag_events"]
    return f"{lag} events are still to be applied, and nothing has changed: stop the clients, or wait longer"


def _in_doubt(rows: list[_Facts]) -> int | None:
    """Return the sum over all links; ``None`` if it is unknown."""
    counts = [row["in_doubt"] for row in rows if row["in_doubt"] is not None]
    return sum(counts) if counts else None


async def _following(client: AdminClient) -> list[str]:
    """Return the names of the links that apply events."""
    return [link["name"] for link in await links_of(client) if link["applying"]]


def _applying(names: list[str] | None, *, applying: bool) -> Callable[[AdminClient], Awaitable[list[_Facts]]]:
    """Return a call that switches ``applying`` of links and lists every link; ``None``: all that apply."""

    async def change(client: AdminClient) -> list[_Facts]:
        for name in await _following(client) if names is None else names:
            await client.update(EXCHANGE_TYPE, name, **{APPLYING: applying})
        return await links_of(client)

    return change


async def _read_source(requests: MemberRequests, source: list[Endpoint]) -> _Facts | None:
    """Return the event status of the source; ``None`` if it cannot be reached."""
    answer = await requests.with_timeout_at_most(STATUS_TIMEOUT).at_primary(source, AdminClient.status)
    facts: _Facts | None = None if answer.result is None else answer.result.facts["site"].get("source")
    return facts


def _promoted(link: _Facts, source: _Facts | None) -> _Facts:
    last = link["last_sequence"]
    # A link that has applied no event lacks all of them.
    known = source is not None and (not last or source["stream"] in last)
    in_doubt = (
        source["last_sequence"] - last.get(source["stream"], 0) if source is not None and known else None
    )
    return {"name": link["name"], "last_sequence": last, "in_doubt": in_doubt}


def _promoted_line(row: _Facts) -> str:
    last = ", ".join(str(number) for number in row["last_sequence"].values()) or "none"
    unknown = row["in_doubt"] is None
    doubt = "the source does not answer what is in doubt" if unknown else f"{row['in_doubt']} events in doubt"
    return f"{row['name']}: last sequence {last}; {doubt}"


# -- fail-back --------------------------------------------------------------------------------------


@site.command("fail-back")
@click.argument("name")
@click.option("--from", "source", required=True, help="This site's URL for clients, without a password.")
@SOURCE_PASSWORD
@click.option("--at", "members", type=MembersType(), required=True, help="Its members.")
@click.option(
    "--to", "former", type=MembersType(), required=True, help="The former source, which will follow."
)
@click.option("--discard", is_flag=True, help="Remove what the former source has in these queues.")
@click.option(
    "--mode",
    type=click.Choice([str(SiteMode.ENQUEUES), str(SiteMode.ALL)]),
    default=str(SiteMode.ALL),
    show_default=True,
    help="What is replicated to it.",
)
@JSON
@request_options(timeout=_TIMEOUT)
def fail_back(
    *,
    name: str,
    source: str,
    source_password_file: str | None,
    members: list[Endpoint],
    former: list[Endpoint],
    discard: bool,
    mode: str,
    as_json: bool,
    requests: MemberRequests,
) -> None:
    """Make the former source follow this promoted site; NAME is the name of the new link.

    Every queue that followed the source emits events now, first for the messages in it.
    """
    source_config = source_options(source, source_password_file)
    answer = run(_fail_back(requests, name, source_config, members, former, mode=mode, discard=discard))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        echo_line(f"{name}: follows {', '.join(answer.result['queues']) or 'no queue'}")
    finish(answer)


async def _fail_back(
    requests: MemberRequests,
    name: str,
    source_config: dict[str, str],
    members: list[Endpoint],
    former: list[Endpoint],
    *,
    mode: str,
    discard: bool,
) -> Answer[_Facts]:
    targets = await requests.at_primary(members, _promoted_queues)
    if targets.result is None:
        return Answer(targets.address, error=targets.error, code=targets.code)
    queues = targets.result

    async def check_old_queues(client: AdminClient) -> _Facts:
        await _old_queues(client, queues, discard=discard)
        return {}

    async def give_events(client: AdminClient) -> _Facts:
        for queue in queues:
            await client.update(QUEUE_TYPE, queue, **{SITE_PROPERTY: mode})
        return {}

    async def follow(client: AdminClient) -> _Facts:
        await client.create(EXCHANGE_TYPE, name, type="replication", **source_config)
        return {"name": name, "queues": queues}

    async def delete_old_queues(client: AdminClient) -> _Facts:
        for queue in await _old_queues(client, queues, discard=discard):
            await client.delete(QUEUE_TYPE, queue)
        return {}

    # Requests that may be refused run before anything is removed.
    answer = await requests.at_primary(former, check_old_queues)
    for address, call in ((members, give_events), (former, delete_old_queues), (former, follow)):
        if answer.result is not None:
            answer = await requests.at_primary(address, call)
    return answer


async def _promoted_queues(client: AdminClient) -> list[str]:
    links = await links_of(client)
    following = [link["name"] for link in links if link["applying"]]
    if following or not links:
        raise MemberRefusedError(
            f"this site follows another one ({', '.join(following)}): promote it first"
            if following
            else "this site has followed no other one: there is nothing to fail back"
        )
    return sorted({row["queue"] for row in await client.query(FOLLOWED_QUEUE_TYPE)})


async def _old_queues(client: AdminClient, queues: list[str], *, discard: bool) -> list[str]:
    """Return the queues that the former source must delete."""
    rows = await client.query(QUEUE_TYPE)
    found = {row["name"]: row["depth"] for row in rows}
    others = [row for row in rows if row["name"] not in queues and row["site_replicate"] != SiteMode.NONE]
    old = [queue for queue in (*queues, *(() if others else (REPLICATION_QUEUE,))) if queue in found]
    full = [f"{queue} ({found[queue]} messages)" for queue in old if found[queue]]
    if full and not discard:
        raise MemberRefusedError(
            f"the former source has a history of its own in {', '.join(full)}: --discard removes it"
        )
    return old
