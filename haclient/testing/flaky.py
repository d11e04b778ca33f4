"""Members that misbehave, for tests that are not coroutines; the behaviours are in ``peers``.

with flaky_peers() as flaky_peer:
    passive = flaky_peer("redirect_after_open", primary=pair.address_of("member-1"))
    ...haclient.connect(url(passive, pair))...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from haclient.testing.peers import BEHAVIOURS, NEED_A_PRIMARY, Peer, url
from haclient.testing.threads import LoopInThread, loop_in_thread


class FlakyPeer:
    """One member that misbehaves, in a thread of this process."""

    def __init__(self, name: str, loop: LoopInThread, peer: Peer) -> None:
        self.name = name
        self._loop = loop
        self._peer = peer

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return self._peer.address

    @property
    def options(self) -> Mapping[str, str]:
        """Return the URL options that a client needs to reach it; ``url`` includes them."""
        return self._peer.options

    @property
    def url(self) -> str:
        """Return a cluster URL that lists this member only."""
        return url(self)

    @property
    def accepted(self) -> int:
        """Return the number of accepted TCP connections."""
        return self._loop.do(lambda: len(self._peer.accepted))

    def __repr__(self) -> str:
        return f"<FlakyPeer {self.name} {self.address}>"


class FlakyPeers:
    """Starts members that misbehave; all end together."""

    names = tuple(BEHAVIOURS)

    def __init__(self, loop: LoopInThread, stack: ExitStack) -> None:
        self._loop = loop
        self._stack = stack

    def __call__(self, name: str, *, primary: str | None = None) -> FlakyPeer:
        """Start a member with a behaviour.

        :param name: one of ``names``.
        :param primary: ``host:port`` of the target, for behaviours that redirect.
        :raises ValueError: for an unknown name, or a redirect without a target.
        """
        if name not in BEHAVIOURS:
            raise ValueError(f"there is no behaviour {name!r}; there are {', '.join(BEHAVIOURS)}")
        if primary is None and name in NEED_A_PRIMARY:
            raise ValueError(f"{name} redirects: say where to, with primary='host:port'")
        target = _peer(primary or "127.0.0.1:5672")
        started = self._stack.enter_context(self._loop.entered(BEHAVIOURS[name](target)))
        return FlakyPeer(name, self._loop, started)


@contextmanager
def flaky_peers() -> Iterator[FlakyPeers]:
    """Yield a function that starts members that misbehave; they end with the body."""
    with loop_in_thread() as loop, ExitStack() as stack:
        yield FlakyPeers(loop, stack)


def _peer(address: str) -> Peer:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"primary={address!r} is not host:port")
    return Peer(host, int(port))
