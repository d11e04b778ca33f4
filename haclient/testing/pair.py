"""Real brokers for an application's tests: a pair that fails over, and a single member.

    with ha_pair() as pair:
        ...haclient.connect(pair.url)...
        pair.kill_primary()

Rules
-----
* A call blocks until its effect has occurred.  All calls are thread-safe.  A test on an event loop that must
  continue meanwhile runs the long ones (``wait_ready``, ``promote``, ``restart``, ``restore``) in another
  thread: ``await asyncio.to_thread(pair.wait_ready)``.
* The members are processes, which end with this one however it ends.
* The only automatic action: when the primary is dead, a backup is promoted.
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
# Seconds beyond the call's own limit, so that it ends with its own, better error instead of the thread's.
_MARGIN = 30.0
_NONE: Mapping[str, str] = MappingProxyType({})


class _BlockingApi:
    """The common part of both classes: the cluster's event loop is in another thread."""

    def __init__(self, loop: LoopInThread, made: Cluster) -> None:
        self._loop = loop
        self._cluster = made

    @property
    def url(self) -> str:
        """Return the cluster URL for clients, without options."""
        return f"amqp://{self.address}"

    @property
    def address(self) -> str:
        """Return ``host:port``, or several with commas between, as in a cluster URL."""
        return ",".join(self._loop.do(lambda: self._cluster.addresses))

    @property
    def options(self) -> Mapping[str, str]:
        """Return the URL options that a client needs to reach it: none (see ``peers.Peer``)."""
        return _NONE

    def wait_ready(self, timeout: float = PATIENCE) -> None:
        """Wait for a primary, and until every other member in service is its backup.

        :param timeout: seconds.
        :raises TimeoutError: when the time limit ends before; the text has every member's state.
        """
        self._loop.call(self._cluster.whole(timeout), timeout + _MARGIN)

    def resume(self) -> None:
        """Send SIGCONT: undo every ``pause``."""
        self._loop.do(self._cluster.resume)

    def restart(self) -> None:
        """Start every dead member again; return when they run."""
        self._loop.call(self._cluster.restart())

    def restore(self) -> None:
        """Reset the cluster: heal, resume, restart, wait until ready, delete every queue and exchange.

        For a fixture that several tests share: call it where a test begins.
        """
        self._loop.call(self._cluster.restore())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}: {self._loop.do(self._cluster.states)}>"


class HAPair(_BlockingApi):
    """Two members (or more), an arbiter, a manager."""

    @property
    def members(self) -> tuple[str, ...]:
        """Return the members' names."""
        return tuple(self._loop.do(lambda: [member.name for member in self._cluster.pair.members]))

    @property
    def primary(self) -> str | None:
        """Return the primary's name; ``None`` if there is none in service."""
        return self._loop.do(lambda: member.name if (member := self._cluster.primary) else None)

    @property
    def generation(self) -> int:
        """Return the highest generation seen; it grows when a primary takes over or goes on alone."""
        return self._loop.do(lambda: self._cluster.pair.generation)

    def address_of(self, member: str) -> str:
        """Return ``host:port`` of a member, for clients."""
        return self._loop.do(lambda: self._cluster.member(member).address.authority)

    def log(self, member: str) -> str:
        """Return the output of a member's process so far."""
        return self._loop.do(lambda: self._cluster.log(member))

    def kill_primary(self, *, restart: bool = True) -> str:
        """Send SIGKILL to the primary, so that a backup is promoted; return the killed member's name.

        :param restart: start it again, as a backup, when another member is primary.
        :raises RuntimeError: when there is no primary.
        """
        return self._loop.call(self._cluster.kill(None, restart=restart))

    def kill(self, member: str, *, restart: bool = True) -> None:
        """Send SIGKILL to any member.

        :param restart: as ``kill_primary``.
        """
        self._loop.call(self._cluster.kill(member, restart=restart))

    def pause(self, member: str | None = None) -> str:
        """Send SIGSTOP: a member's kernel accepts connections, but the member does not answer.

        No member is promoted in its place before ``promote``.

        :param member: ``None`` for the primary.
        :returns: the member's name.
        """
        return self._loop.call(self._cluster.pause(member))

    def promote(self, member: str | None = None) -> str:
        """Make a backup primary; return its name when it serves.

        A primary in service steps down in order.  A paused or partitioned one is not asked: it learns of the
        new primary when it is back.

        :param member: ``None`` for the first backup that is in service.
        :raises broker_stub.management_client.AdminError: when the member refuses because its store is
            incomplete.
        :raises RuntimeError: when there is no backup.
        """
        return self._loop.call(self._cluster.promote(member))

    def partition(self, member: str | None = None, *, how: How = "silent") -> str:
        """Cut a member off from its clients, the other members, the arbiter and the manager.

        No member is promoted in its place before ``promote``.

        :param member: ``None`` for the primary.
        :param how: ``silent``: packets vanish; ``reset``: connections are reset.
        :returns: the member's name.
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
        """Send SIGKILL; the member stays dead until ``restart``."""
        self._loop.call(self._cluster.kill(FIRST, restart=False))

    def restart(self) -> None:
        """Start the member again; return when it serves."""
        super().restart()
        self.wait_ready()

    def pause(self) -> None:
        """Send SIGSTOP: its kernel accepts connections, but the member does not answer."""
        self._loop.call(self._cluster.pause(FIRST))

    def log(self) -> str:
        """Return the output of its process so far."""
        return self._loop.do(lambda: self._cluster.log(FIRST))


@contextmanager
def ha_pair(
    *,
    members: int = 2,
    users: Mapping[str, str] = _NONE,
    anonymous: bool | None = None,
    serve_arguments: tuple[str, ...] = (),
) -> Iterator[HAPair]:
    """Start a pair; it is ready when the body starts, and ends with it.

    :param members: the number of members.
    :param users: names and passwords of clients.
    :param anonymous: whether clients may connect without a name; ``None`` allows it only without ``users``.
    :param serve_arguments: more arguments for each member's ``broker-stub serve``.
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
    """Start one member; the parameters are as for ``ha_pair``."""
    setup = ClusterSetup(members=1, users=users, anonymous=anonymous, serve_arguments=serve_arguments)
    with loop_in_thread() as loop, loop.entered(cluster(setup)) as made:
        yield Broker(loop, made)
