"""What the matrix needs of a broker: members, a fault, the moment it serves again, what it stores.

Rules
-----
* A cluster is made for one fault (``Launch``): routes through forwarders, failback and the like cost
  something, and exist only where the fault needs them.
* ``inject`` returns once the fault is in force: the member that was primary no longer accepts.  What ends the
  fault (SIGCONT, the end of a silence, a restart after both were down) happens by itself, later.
* ``serving`` and ``drain`` speak through bare proton, never through haclient: they are the judges.
* Every wait has a bound, and its end is ``ClusterError`` with the tails of the members' logs.
* Forwarders run in the caller's event loop, which nothing may block; programs under test are processes.
* Everything listens on loopback, on ports that were free.  Processes are ended by their ids.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from haclient.cluster_url.endpoint import Endpoint

BOTH_DOWN_SECONDS = 30.0
"""How long no member runs after ``Fault.BOTH_DOWN``; the client has to wait, and has to be patient."""
PAUSE_SECONDS = 10.0
"""From SIGSTOP to SIGCONT; longer than the heartbeats of the programs, so that they notice."""


ALARM_SECONDS = 15.0
"""Longer than the patience of impatient calls, and than the heartbeats."""
NO_QUORUM_SECONDS = 20.0
"""Long enough that a node notices that it is alone."""


class Fault(enum.Enum):
    """What happens to the primary."""

    KILL = "kill"
    """SIGKILL.  In a cluster of one, it is started again at once."""
    STOP = "stop"
    """A graceful stop, as for an upgrade.  In a cluster of one, it is started again."""
    FAILBACK = "failback"
    """The killed primary comes back and takes over from the backup: the outage meant is this second one."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT after ``PAUSE_SECONDS``."""
    SILENCE = "silence"
    """The primary's host loses its power: TCP connections stay, and nobody answers."""
    BOTH_DOWN = "both-down"
    """Every member is killed, and started again after ``BOTH_DOWN_SECONDS``."""
    MOVE = "move"
    """Mastership is moved to another member by the product's own command."""
    LEADER = "leader"
    """SIGKILL of the node that leads the queues, where every node serves; clients may be at another one."""
    DRAIN = "drain"
    """The node of the clients is put into maintenance, as for an upgrade, and taken back after it."""
    CLOSE = "close"
    """An operator closes every connection; the node goes on."""
    ALARM = "alarm"
    """The broker has no memory left for ``ALARM_SECONDS``: it takes no messages."""
    NO_QUORUM = "no-quorum"
    """Most nodes are away for ``NO_QUORUM_SECONDS``."""
    VIP = "vip"
    """SIGKILL, with clients that know a single address, which follows the primary."""


class ClusterError(Exception):
    """A member does not start, serve or sync in time; the text has the tails of the logs."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that the broker had stored.

    :ivar id: its message-id, as proton gives it; ``None`` without one.
    :ivar body: as proton decodes it.
    :ivar delivery_count: the header's; how often a delivery failed before.
    """

    id: object
    body: object
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Served:
    """A member that accepted a handshake of the judge; the one before it, 50 ms earlier, was refused.

    :ivar at: the moment at which the handshake was done (``time.monotonic``).
    :ivar since: the moment at which it began: a client's dial from then on is at a member that accepts.
    :ivar endpoint: where clients look for the member.
    """

    at: float
    since: float
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Launch:
    """How a cluster is to be started.

    :ivar folder: its own; data, configuration and logs go there.
    :ivar fault: the one that it is made for; ``inject`` takes this one, and ``KILL`` always.
    """

    folder: Path
    fault: Fault = Fault.KILL


class BrokerCluster(Protocol):
    """Members of one product on this machine."""

    @property
    def name(self) -> str:
        """For example ``artemis-locked``; see ``clusters.NAMES``."""

    @property
    def version(self) -> str:
        """The product's, for the results."""

    @property
    def url(self) -> str:
        """The cluster URL for haclient: members or the VIP, credentials, and what the product needs."""

    @property
    def detects_duplicates(self) -> bool:
        """Whether a message that is sent again is stored once, if the client asks for it."""

    @property
    def faults(self) -> frozenset[Fault]:
        """Those that make sense here and lose nothing by the product's own promise."""

    async def start(self) -> None:
        """Start the members; return when the primary accepts and redundancy is there.

        :raises ClusterError: when it does not come up; ``stop`` is still to be called.
        """

    async def stop(self) -> None:
        """End every process, also after a failed start.  The folder stays."""

    async def inject(self, fault: Fault) -> float:
        """Make the fault; return when it is in force.

        :returns: the moment at which the outage began (``time.monotonic``).
        """

    async def serving(self) -> Served:
        """Wait until a member accepts a handshake with an Attach; it tries every 50 ms."""

    async def whole(self) -> None:
        """Start the members that are down, and wait until the next fault would lose nothing."""

    def queue(self, name: str) -> str:
        """The address of a durable queue of that name; it is there, or is made by its first use."""

    async def drain(self, name: str) -> list[Stored]:
        """Take what is stored in ``queue(name)``, in order, until there is no more."""
