"""Two clusters of real member processes, and a link between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_stub.amqp.node_names import EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.management_client import AdminError, MemberStatus
from broker_stub.queueing.site_state import SITE_PROPERTY
from haclient import aio
from haclient.errors import ReceiveTimeout
from tests.broker_stub.replication.cluster import USER, Cluster, Member

LINK = "from-a"
NAME, PASSWORD = USER
_OPTIONS = "heartbeat=2&attempt_timeout=3&backoff_base=0.02&backoff_max=0.2"
_PATIENCE = 60.0
# Between two messages of a queue that is read from its front.
_LONGEST_GAP = 5.0


@dataclass(slots=True)
class Sites:
    """A source and a DR site; each has a primary and a backup that change places."""

    source: Cluster
    dr: Cluster
    password_file: Path
    """The password of the link's user at the source."""
    telemetry: Path
    """The telemetry of the DR site's members."""

    @property
    def url(self) -> str:
        """The source's URL for clients."""
        return f"{self.source.url}/?{_OPTIONS}"

    @property
    def way(self) -> str:
        """The source's URL for the link."""
        return as_user(self.url)

    @property
    def both_urls(self) -> str:
        """The URL of the source, and of the DR site when the source is gone."""
        members = ",".join(member.address.authority for member in self.dr.members)
        return f"{self.url}&dr={members}&dr_after=1"

    async def begin(self, *, way: str | None = None, **queues: str) -> None:
        """Start both, with queues of these names and modes, and the link.

        :param way: the cluster URL that the link uses; by default straight to the members.
        """
        (a, _), (c, _) = await asyncio.gather(self.source.pair(), self.dr.pair())
        for name, mode in queues.items():
            await a.call("CREATE", kind=QUEUE_TYPE, name=name, **{SITE_PROPERTY: mode})
        options = {"type": "replication", "from": way or self.way, "password_file": str(self.password_file)}
        await c.call("CREATE", kind=EXCHANGE_TYPE, name=LINK, **options)

    async def equal(self) -> None:
        """Wait until the DR site has applied everything."""
        primary = await serving(self.source)
        await primary.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)

    async def link(self) -> dict[str, Any]:
        """Return the DR site's status of its link."""
        [facts] = (await (await serving(self.dr)).status()).facts["site"]["links"]
        return dict(facts)


def as_user(url: str) -> str:
    """Return the URL for the user of links."""
    return url.replace("://", f"://{NAME}@")


def write_password(path: Path, password: str = PASSWORD) -> Path:
    """Write a file that other users cannot read."""
    path.touch(mode=0o600)
    path.write_text(f"{password}\n")
    return path


@asynccontextmanager
async def sites(folder: Path) -> AsyncIterator[Sites]:
    for name in ("source", "dr"):
        (folder / name).mkdir()
    telemetry = folder / "telemetry"
    passwords = folder / "passwords"
    passwords.mkdir(mode=0o700)
    shared = ("--link-user", NAME, "--link-passwords", str(passwords))
    (west, east) = (("--cluster", name, *shared) for name in ("west", "east"))
    east = (*east, "--telemetry", str(telemetry))
    async with (
        Cluster(folder / "source", ("a", "b"), backup_timeout=5.0, arguments=west) as source,
        Cluster(folder / "dr", ("c", "d"), backup_timeout=5.0, arguments=east) as dr,
    ):
        yield Sites(source, dr, write_password(passwords / "link.password"), telemetry)


async def serving(cluster: Cluster) -> Member:
    """Return the member that serves."""
    for member in cluster.members:
        if (status := await _status(member)) is not None and status.serves:
            return member
    raise AssertionError("no member serves")


async def _status(member: Member) -> MemberStatus | None:
    if member.process.pid is None:
        return None
    try:
        return await member.status()
    except (AdminError, OSError):
        return None


async def fail_over(cluster: Cluster) -> None:
    """Kill the primary, promote the other member, and restart the killed one."""
    primary = await serving(cluster)
    successor = next(member for member in cluster.members if member is not primary)
    await successor.until("ready")
    await primary.kill()
    await successor.promote()
    await primary.start()
    await primary.until("ready")


async def looked_at(member: Member, queue: str) -> list[Any]:
    """Browse the bodies of a queue, in order.  Messages that expire meanwhile may be missing."""
    found: list[Any] = []
    count = await member.depth(queue) or 0
    async with asyncio.timeout(_PATIENCE), aio.connect(member.url) as connection:
        receiver = await connection.create_receiver(queue, browse=True, credit=1000)
        with suppress(ReceiveTimeout):
            while len(found) < count:
                found.append((await receiver.receive(timeout=_LONGEST_GAP)).message.body)
    return found
