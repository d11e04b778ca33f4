"""``site``: take over from another site, and go back.

Theory of operation
-------------------
To take over is to carry out no more events: what comes from the source afterwards would be put
behind what clients do here.  What of the source is missing then is *in doubt*: the source knows the
last sequence it gave, if it can be asked.

A planned take-over waits until nothing is in doubt, and then leads the source's clients here.

To go back is the same the other way round: the queues that followed get events, what is in them
first of all, and the former source follows.  Its own content is of another history, so it is removed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import click

from broker_stub.address import Address
from broker_stub.cli.link import SOURCE_PASSWORD, links_of, way_options
from broker_stub.cli.member_requests import (
    JSON,
    LOOK_TIMEOUT,
    MEMBERS,
    Answer,
    Asking,
    MembersType,
    finish,
    flat,
    how,
)
from broker_stub.cli.options import REFUSED
from broker_stub.management import EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.management_client import AdminClient, MemberRefusedError
from broker_stub.sites.inbound import APPLYING
from broker_stub.sites.modes import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode

# A change is answered when the backups have it: a stalled one is dropped after ten seconds.
_TIMEOUT = 30.0
# Seconds between two looks at the lag of a source that is to be left in order.
_LOOK_AGAIN = 0.2

_Facts = dict[str, Any]


@click.group()
def site() -> None:
    """Take over from another site, and go back."""


# -- promote ----------------------------------------------------------------------------------------


@site.command("promote")
@MEMBERS
@click.option("--source", type=MembersType(), help="Members of the source, to ask what is in doubt.")
@click.option(
    "--planned",
    is_flag=True,
    help="When nothing is in doubt, within --timeout; then demote the source: its clients come here.",
)
@JSON
@how(timeout=_TIMEOUT)
def promote(
    *,
    members: tuple[list[Address], ...],
    source: list[Address] | None,
    planned: bool,
    as_json: bool,
    asking: Asking,
) -> None:
    """Carry out no more events: from now on this site has a history of its own.

    Says for each link the last sequence that was carried out, and how many more the source gave.
    """
    if planned and source is None:
        raise click.UsageError("--planned needs --source: the site that is left in order")
    if planned and source is not None:
        answer = asyncio.run(_change_over(asking, flat(members), source))
    else:
        answer = asyncio.run(_promote(asking, flat(members), source))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    for row in answer.result or () if not as_json else ():
        click.echo(_promoted_line(row))
    finish(answer)


async def _promote(
    asking: Asking, members: list[Address], source: list[Address] | None
) -> Answer[list[_Facts]]:
    answer = await asking.at_primary(members, _applying(None, applying=False))
    asked = None if source is None or answer.result is None else await _ask_source(asking, source)
    rows = [_promoted(link, asked) for link in answer.result or ()]
    return Answer(answer.address, None if answer.result is None else rows, answer.error, answer.code)


async def _change_over(asking: Asking, members: list[Address], source: list[Address]) -> Answer[list[_Facts]]:
    """Take over when nothing is in doubt, and lead the source's clients here."""
    end = time.monotonic() + asking.timeout
    following = await asking.at_primary(members, _following)
    if following.result is None:
        return Answer(following.address, error=following.error, code=following.code)
    while True:
        events = await _ask_source(asking, source)
        if events is not None and events["lag_events"] == 0:
            answer = await _promote(asking, members, source)
            if answer.result is None or _in_doubt(answer.result) == 0:
                break
            resumed = await asking.at_primary(members, _applying(following.result, applying=True))
            if resumed.error:
                return replace(
                    answer, error=f"promoted with events in doubt: {resumed.error}", code=resumed.code
                )
        if time.monotonic() > end:
            return Answer(following.address, error=_not_yet(events), code=REFUSED)
        await asyncio.sleep(_LOOK_AGAIN)
    if answer.result is None:
        return answer
    left = await asking.at_primary(source, lambda client: client.demote(answer.address))
    if left.result is None:
        return replace(answer, error=f"this site is promoted; {left.error}", code=left.code)
    rows = [_promoted(row, left.result.facts["site"].get("source")) for row in answer.result]
    late = _in_doubt(rows)
    error = f"{late} events came between the last look and the end of the source" if late else ""
    return Answer(answer.address, rows, error, REFUSED if error else 0)


def _not_yet(events: _Facts | None) -> str:
    if events is None:
        return "the source cannot tell what is in doubt: nothing has changed"
    lag = events["lag_events"]
    return (
        f"{lag} events are on their way still, and nothing has changed: stop the clients, or give it longer"
    )


def _in_doubt(rows: list[_Facts]) -> int | None:
    """Of all links; ``None`` when that is not known."""
    counts = [row["in_doubt"] for row in rows if row["in_doubt"] is not None]
    return sum(counts) if counts else None


async def _following(client: AdminClient) -> list[str]:
    """The links that carry events out."""
    return [link["name"] for link in await links_of(client) if link["applying"]]


def _applying(names: list[str] | None, *, applying: bool) -> Callable[[AdminClient], Awaitable[list[_Facts]]]:
    """Have these links carry events out, or those that do no more (``None``); then tell of every link."""

    async def change(client: AdminClient) -> list[_Facts]:
        for name in await _following(client) if names is None else names:
            await client.update(EXCHANGE_TYPE, name, **{APPLYING: applying})
        return await links_of(client)

    return change


async def _ask_source(asking: Asking, source: list[Address]) -> _Facts | None:
    """The events of the source; ``None`` when it cannot be asked."""
    answer = await asking.at_most(LOOK_TIMEOUT).at_primary(source, AdminClient.status)
    facts: _Facts | None = None if answer.result is None else answer.result.facts["site"].get("source")
    return facts


def _promoted(link: _Facts, source: _Facts | None) -> _Facts:
    last = link["last_sequence"]
    # A link that has carried out nothing at all lacks everything.
    known = source is not None and (not last or source["stream"] in last)
    in_doubt = (
        source["last_sequence"] - last.get(source["stream"], 0) if source is not None and known else None
    )
    return {"name": link["name"], "last_sequence": last, "in_doubt": in_doubt}


def _promoted_line(row: _Facts) -> str:
    last = ", ".join(str(number) for number in row["last_sequence"].values()) or "none"
    unknown = row["in_doubt"] is None
    doubt = "the source cannot tell what is in doubt" if unknown else f"{row['in_doubt']} events in doubt"
    return f"{row['name']}: last sequence {last}; {doubt}"


# -- fail-back --------------------------------------------------------------------------------------


@site.command("fail-back")
@click.argument("name")
@click.option("--from", "source", required=True, help="This site, as clients know it, without a password.")
@SOURCE_PASSWORD
@click.option("--at", "members", type=MembersType(), required=True, help="Its members.")
@click.option("--to", "former", type=MembersType(), required=True, help="The former source: it will follow.")
@click.option("--discard", is_flag=True, help="Remove what the former source has in these queues.")
@click.option(
    "--mode",
    type=click.Choice([str(SiteMode.ENQUEUES), str(SiteMode.ALL)]),
    default=str(SiteMode.ALL),
    show_default=True,
    help="What it gets of them.",
)
@JSON
@how(timeout=_TIMEOUT)
def fail_back(
    *,
    name: str,
    source: str,
    source_password_file: str | None,
    members: list[Address],
    former: list[Address],
    discard: bool,
    mode: str,
    as_json: bool,
    asking: Asking,
) -> None:
    """Let the former source follow this site, which was promoted; NAME is that of the new link.

    Every queue here that followed gets events, what is in it first of all.
    """
    way = way_options(source, source_password_file)
    answer = asyncio.run(_fail_back(asking, name, way, members, former, mode=mode, discard=discard))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        click.echo(f"{name}: follows {', '.join(answer.result['queues']) or 'no queue'}")
    finish(answer)


async def _fail_back(
    asking: Asking,
    name: str,
    way: dict[str, str],
    members: list[Address],
    former: list[Address],
    *,
    mode: str,
    discard: bool,
) -> Answer[_Facts]:
    targets = await asking.at_primary(members, _promoted_queues)
    if targets.result is None:
        return Answer(targets.address, error=targets.error, code=targets.code)
    queues = targets.result

    async def look(client: AdminClient) -> _Facts:
        await _old_queues(client, queues, discard=discard)
        return {}

    async def give_events(client: AdminClient) -> _Facts:
        for queue in queues:
            await client.update(QUEUE_TYPE, queue, **{SITE_PROPERTY: mode})
        return {}

    async def follow(client: AdminClient) -> _Facts:
        await client.create(EXCHANGE_TYPE, name, type="replication", **way)
        return {"name": name, "queues": queues}

    async def make_room(client: AdminClient) -> _Facts:
        for queue in await _old_queues(client, queues, discard=discard):
            await client.delete(QUEUE_TYPE, queue)
        return {}

    # What can be refused comes before anything is removed.
    answer = await asking.at_primary(former, look)
    for address, what in ((members, give_events), (former, make_room), (former, follow)):
        if answer.result is not None:
            answer = await asking.at_primary(address, what)
    return answer


async def _promoted_queues(client: AdminClient) -> list[str]:
    links = await links_of(client)
    following = [link["name"] for link in links if link["applying"]]
    if following or not links:
        raise MemberRefusedError(
            f"this site follows another one ({', '.join(following)}): promote it first"
            if following
            else "this site has followed no other one: there is nothing to give back"
        )
    return sorted({queue for link in links for queue in link["queues"]})


async def _old_queues(client: AdminClient, queues: list[str], *, discard: bool) -> list[str]:
    """What the former source has to give up."""
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
