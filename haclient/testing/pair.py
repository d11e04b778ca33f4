"""Real brokers for an application's tests: a pair that fails over, and a single member.

    with ha_pair() as pair:
        ...haclient.connect(pair.url)...
        pair.kill_primary()

Rules
-----
* Calls block until what they say has happened.  They are for any thread; a test on an event loop that
  must go on meanwhile puts the long ones (``wait_ready``, ``promote``, ``restart``, ``restore``) on another:
  ``await asyncio.to_thread(pair.wait_ready)``.
* The members are processes, which die with this one whatever becomes of it.
* Nothing happens by itself but this: when the primary is dead, a backup is promoted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Literal

from haclient.testing.cluster import FIRST, PATIENCE, Cluster, ClusterSetup, cluster
from haclient.testing.network import Cut
from haclient.testing.threads import LoopInThread, loop_in_thread

How = Literal["silent", "reset"]
_CUTS = MappingProxyType({"silent": Cut.HOLD, "reset": Cut.RESET})
# Beyond what the call itself waits for: it ends with a better error than the thread's.
_MARGIN = 30.0
_NONE: Mapping[str, str] = MappingProxyType({})


class _BlockingApi:
    """What both APIs of a cluster need: its event loop is on another thread."""

    def __init__(self, loop: LoopInThread, made: Cluster) -> None:
        self._loop = loop
        self._cluster = made

    @property
    def url(self) -> str:
        """The cluster URL for clients, without options."""
        return f"amqp://{self.address}"

    @property
    def address(self) -> str:
        """``host:port``; those of several members with commas between, as in a cluster URL."""
        return ",".join(self._loop.do(lambda: self._cluster.addresses))

    @property
    def options(self) -> Mapping[str, str]:
        """URL options that a client needs to meet it: none (see ``peers.Peer``)."""
        return _NONE

    def wait_ready(self, timeout: float = PATIENCE) -> None:
        """Wait for a primary, and for every other member that was not put out of service to back it up.

        :param timeout: seconds.
        :raises TimeoutError: when it is not so in time; the text has every member's state.
        """
        self._loop.call(self._cluster.whole(timeout), timeout + _MARGIN)

    def resume(self) -> None:
        """SIGCONT: undo every ``pause``."""
        self._loop.do(self._cluster.resume)

    def restart(self) -> None:
        """Start every member again that is dead; returns when it runs."""
        self._loop.call(self._cluster.restart())

    def restore(self) -> None:
        """As new: heal, resume, restart, wait until ready, delete every queue and exchange.

        For a fixture that several tests share: call it where a test begins.
        """
        self._loop.call(self._cluster.restore())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}: {self._loop.do(self._cluster.states)}>"


class HAPair(_BlockingApi):
    """Two members (or more), an arbiter, a manager."""

    @property
    def members(self) -> tuple[str, ...]:
        """The members' names."""
        return tuple(self._loop.do(lambda: [member.name for member in self._cluster.pair.members]))

    @property
    def primary(self) -> str | None:
        """The primary's name; ``None`` while there is none in service."""
        return self._loop.do(lambda: member.name if (member := self._cluster.primary) else None)

    @property
    def generation(self) -> int:
        """The highest generation seen: it grows each time that a primary takes over or goes on alone."""
        return self._loop.do(lambda: self._cluster.pair.generation)

    def address_of(self, member: str) -> str:
        """``host:port`` of a member, for clients."""
        return self._loop.do(lambda: self._cluster.member(member).address.authority)

    def log(self, member: str) -> str:
        """What a member's process has written so far."""
        return self._loop.do(lambda: self._cluster.log(member))

    def kill_primary(self, *, restart: bool = True) -> str:
        """SIGKILL the primary; a backup is promoted then.  The name of the one that died.

        :param restart: start it again, as a backup, when another one is primary.
        :raises RuntimeError: when there is no primary.
        """
        return self._loop.call(self._cluster.kill(None, restart=restart))

    def kill(self, member: str, *, restart: bool = True) -> None:
        """SIGKILL any member.

        :param restart: as ``kill_primary``.
        """
        self._loop.call(self._cluster.kill(member, restart=restart))

    def pause(self, member: str | None = None) -> str:
        """SIGSTOP: its kernel accepts connections, and the member does not answer.  The name of the member.

        No member is promoted in its place before ``promote``.

        :param member: ``None`` for the primary.
        """
        return self._loop.call(self._cluster.pause(member))

    def promote(self, member: str | None = None) -> str:
        """Make a backup primary; returns when it serves.  The name of the new primary.

        A primary in service gives up its place in order.  One that is paused or partitioned is not asked:
        it finds out when it is back.

        :param member: ``None`` for the first backup that is in service.
        :raises broker_stub.management_client.AdminError: when the member refuses: its store lacks something.
        :raises RuntimeError: when there is no backup.
        """
        return self._loop.call(self._cluster.promote(member))

    def partition(self, member: str | None = None, *, how: How = "silent") -> str:
        """Cut a member off from its clients, the other members, the arbiter and the manager.  Its name.

        No member is promoted in its place before ``promote``.

        :param member: ``None`` for the primary.
        :param how: ``silent``: packets vanish; ``reset``: connections are reset.
        """
        if how not in _CUTS:
            raise ValueError(f"how={how!r}: it is one of {', '.join(_CUTS)}")
        return self._loop.do(lambda: self._cluster.cut_off(member, _CUTS[how]))

    def heal(self) -> None:
        """Undo every ``partition``."""
        self._loop.do(self._cluster.heal)


class Broker(_BlockingApi):
    """One member, which keeps its messages over ``kill`` and ``restart``."""

    def kill(self) -> None:
        """SIGKILL; it stays dead until ``restart``."""
        self._loop.call(self._cluster.kill(FIRST, restart=False))

    def restart(self) -> None:
        """Start it again; returns when it serves."""
        super().restart()
        self.wait_ready()

    def pause(self) -> None:
        """SIGSTOP: its kernel accepts connections, and the member does not answer."""
        self._loop.call(self._cluster.pause(FIRST))

    def log(self) -> str:
        """What its process has written so far."""
        return self._loop.do(lambda: self._cluster.log(FIRST))


@contextmanager
def ha_pair(
    *,
    members: int = 2,
    users: Mapping[str, str] = _NONE,
    anonymous: bool | None = None,
    serve_arguments: tuple[str, ...] = (),
) -> Iterator[HAPair]:
    """Start a pair; it is ready when the body starts, and gone after it.

    :param members: how many, if not two.
    :param users: names and passwords of clients.
    :param anonymous: whether clients may connect without a name; ``None`` for only without ``users``.
    :param serve_arguments: more arguments for each member's ``broker-stub serve``.
    :raises haclient.errors.SaslUnavailableError: without Cyrus SASL.
    """
    setup = ClusterSetup(members=members, users=users, anonymous=anonymous, serve_arguments=serve_arguments)
    with loop_in_thread() as loop, loop.entered(cluster(setup)) as made:
        yield HAPair(loop, made)


@contextmanager
def broker(
    *,
    users: Mapping[str, str] = _NONE,
    anonymous: bool | None = None,
    serve_arguments: tuple[str, ...] = (),
) -> Iterator[Broker]:
    """Start one member; the parameters are those of ``ha_pair``."""
    setup = ClusterSetup(members=1, users=users, anonymous=anonymous, serve_arguments=serve_arguments)
    with loop_in_thread() as loop, loop.entered(cluster(setup)) as made:
        yield Broker(loop, made)
