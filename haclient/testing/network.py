"""The routes between clients, members and the arbiter, each of which a test can cut.

Rules
-----
* A route is a pair of parties: two members' names, or a member's and ``CLIENTS``.
* ``HOLD`` holds bytes back: connections stay open, and a waiting party sees no error.  ``RESET`` ends
  connections and refuses new ones.  Held bytes pass when the route is healed.
* For the directory arbiter a cut route is a path that no longer exists, with immediate effect.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import Peer, loopback_host
from haclient.testing.proxy import Proxy, proxy

CLIENTS = "clients"


class Cut(enum.Enum):
    """How a route is cut."""

    HOLD = "hold"
    RESET = "reset"


class ProxyNetwork:
    """A TCP proxy on each route between members and their clients or peers."""

    def __init__(
        self, members: Sequence[str], routes: dict[tuple[str, str], Proxy], free: Iterable[Endpoint]
    ) -> None:
        self.addresses = tuple(free)
        self._members = tuple(members)
        self._routes = routes

    def client_addresses(self) -> list[str]:
        """Return the members' addresses for clients."""
        return [self._routes[CLIENTS, member].address for member in self._members]

    def peer_addresses(self, member: str) -> list[str]:
        """Return the addresses of the other members for one member."""
        return [self._routes[member, other].address for other in self._members if other != member]

    def listen(self, member: str) -> str:
        """Return the address on which a member listens."""
        return self.addresses[self._members.index(member)].authority

    def wrapper(self, member: str) -> tuple[str, ...]:
        """Return the prefix of a member's command."""
        return ()

    def cut(self, one: str, other: str, how: Cut) -> None:
        """Cut a route, in both directions."""
        for route in ((one, other), (other, one)):
            if route in self._routes:
                self._routes[route].hold() if how is Cut.HOLD else self._routes[route].refuse()

    def heal(self) -> None:
        """Heal every route."""
        for route in self._routes.values():
            route.release()


@asynccontextmanager
async def proxies(members: Sequence[str]) -> AsyncIterator[ProxyNetwork]:
    """Start proxies on loopback; no process listens on the members' addresses yet."""
    async with AsyncExitStack() as stack:
        # A separate host for each, so that concurrent test runs cannot take the port meanwhile.
        free = free_addresses(tuple(Endpoint(loopback_host(), 0) for _ in members))
        routes = {}
        for member, address in zip(members, free, strict=True):
            target = Peer(address.host, address.port)
            for party in (CLIENTS, *(other for other in members if other != member)):
                routes[party, member] = await stack.enter_async_context(proxy(target))
        yield ProxyNetwork(members, routes, free)


class DirectoryRoutes:
    """One arbiter directory, and for each member a symbolic link to it that can be removed."""

    def __init__(self, folder: Path, members: Sequence[str]) -> None:
        directory = folder / "arbiter"
        self.url = f"directory:{directory}"
        self._links = {member: folder / f"arbiter-of-{member}" for member in members}
        directory.mkdir()
        for link in self._links.values():
            link.symlink_to(directory)

    def member_url(self, member: str) -> str:
        """Return the arbiter's URL for a member."""
        return f"directory:{self._links[member]}"

    def cut(self, member: str, how: Cut) -> None:
        """Remove the link of one member, like an unmounted share; ``how`` has no effect."""
        link = self._links[member]
        if link.is_symlink():
            link.rename(_unmounted(link))

    def heal(self) -> None:
        """Heal every route."""
        for link in self._links.values():
            if _unmounted(link).is_symlink():
                _unmounted(link).rename(link)


def _unmounted(link: Path) -> Path:
    return link.with_name(f"{link.name}.away")
