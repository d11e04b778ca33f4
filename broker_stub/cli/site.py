"""``site``: take over from another site, and go back.

Theory of operation
-------------------
To take over is to carry out no more events: what comes from the source afterwards would be put
behind what clients do here.  What of the source is missing then is *in doubt*: the source knows the
last sequence it gave, if it can be asked.

To go back is the same the other way round: the queues that followed get events, what is in them
first of all, and the former source follows.  Its own content is of another history, so it is removed.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from broker_stub.address import Address
from broker_stub.admin import AdminClient, MemberRefusedError
from broker_stub.cli.asking import JSON, LOOK_TIMEOUT, MEMBERS, Answer, Asking, MembersType, finish, flat, how
from broker_stub.cli.link import SourceType, links_of
from broker_stub.management import EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.sites.applying import APPLYING, FROM
from broker_stub.sites.modes import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode

# A change is answered when the backups have it: a stalled one is dropped after ten seconds.
_TIMEOUT = 30.0

_Facts = dict[str, Any]


@click.group()
def site() -> None:
    """Take over from another site, and go back."""


# -- promote ----------------------------------------------------------------------------------------


@site.command("promote")
@MEMBERS
@click.option("--source", type=MembersType(), help="Members of the source, to ask what is in doubt.")
@JSON
@how(timeout=_TIMEOUT)
def promote(
    *, members: tuple[list[Address], ...], source: list[Address] | None, as_json: bool, asking: Asking
) -> None:
    """Carry out no more events: from now on this site has a history of its own.

    Says for each link the last sequence that was carried out, and how many more the source gave.
    """
    answer = asyncio.run(_promote(asking, flat(members), source))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    for row in answer.result or () if not as_json else ():
        click.echo(_promoted_line(row))
    finish(answer)


async def _promote(
    asking: Asking, members: list[Address], source: list[Address] | None
) -> Answer[list[_Facts]]:
    async def stop_applying(client: AdminClient) -> list[_Facts]:
        for link in await links_of(client):
            await client.update(EXCHANGE_TYPE, link["name"], **{APPLYING: False})
        return await links_of(client)

    answer = await asking.at_primary(members, stop_applying)
    asked = None if source is None or answer.result is None else await _ask_source(asking, source)
    rows = [_promoted(link, asked) for link in answer.result or ()]
    return Answer(answer.address, None if answer.result is None else rows, answer.error, answer.code)


async def _ask_source(asking: Asking, source: list[Address]) -> _Facts | None:
    """The events of the source; ``None`` when it cannot be asked."""
    answer = await asking.at_most(LOOK_TIMEOUT).at_primary(source, AdminClient.status)
    facts: _Facts | None = None if answer.result is None else answer.result.facts["site"].get("source")
    return facts


def _promoted(link: _Facts, source: _Facts | None) -> _Facts:
    last = link["last_sequence"]
    known = source is not None and source["stream"] in last
    in_doubt = source["last_sequence"] - last[source["stream"]] if source is not None and known else None
    return {"name": link["name"], "last_sequence": last, "in_doubt": in_doubt}


def _promoted_line(row: _Facts) -> str:
    last = ", ".join(str(number) for number in row["last_sequence"].values()) or "none"
    unknown = row["in_doubt"] is None
    doubt = "the source cannot tell what is in doubt" if unknown else f"{row['in_doubt']} events in doubt"
    return f"{row['name']}: last sequence {last}; {doubt}"


# -- fail-back --------------------------------------------------------------------------------------


@site.command("fail-back")
@click.argument("name")
@click.option("--from", "source", type=SourceType(), required=True, help="This site, as clients know it.")
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
    answer = asyncio.run(_fail_back(asking, name, source, members, former, mode=mode, discard=discard))
    if as_json:
        click.echo(json.dumps(answer.plain()))
    elif answer.result is not None:
        click.echo(f"{name}: follows {', '.join(answer.result['queues']) or 'no queue'}")
    finish(answer)


async def _fail_back(
    asking: Asking,
    name: str,
    source: str,
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

    async def give_events(client: AdminClient) -> _Facts:
        for queue in queues:
            await client.update(QUEUE_TYPE, queue, **{SITE_PROPERTY: mode})
        return {}

    async def follow(client: AdminClient) -> _Facts:
        await client.create(EXCHANGE_TYPE, name, **{"type": "replication", FROM: source})
        return {"name": name, "queues": queues}

    answer = await asking.at_primary(former, lambda client: _make_room(client, queues, discard=discard))
    for address, what in ((members, give_events), (former, follow)):
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


async def _make_room(client: AdminClient, queues: list[str], *, discard: bool) -> _Facts:
    rows = await client.query(QUEUE_TYPE)
    found = {row["name"]: row["depth"] for row in rows}
    others = [row for row in rows if row["name"] not in queues and row["site_replicate"] != SiteMode.NONE]
    old = [queue for queue in (*queues, *(() if others else (REPLICATION_QUEUE,))) if queue in found]
    full = [f"{queue} ({found[queue]} messages)" for queue in old if found[queue]]
    if full and not discard:
        raise MemberRefusedError(
            f"the former source has a history of its own in {', '.join(full)}: --discard removes it"
        )
    for queue in old:
        await client.delete(QUEUE_TYPE, queue)
    return {}
