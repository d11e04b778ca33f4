"""The matrix's interface to a broker: its members, faults, the time when it serves again, its stored
messages.

Rules
-----
* A cluster is made for one fault (``Launch``). Forwarders, failback and the like are costly, and exist
  only if the fault needs them.
* ``inject`` returns once the fault is in force: the former primary no longer accepts. The fault ends by
  itself later (SIGCONT, the end of a silence, a restart after both were down).
* ``serving`` and ``drain`` use bare proton, never haclient, because they are the judges.
* Every wait has a bound. On expiry it raises ``ClusterError`` with the tails of the members' logs.
* Forwarders run in the caller's event loop, which must not be blocked. Programs under test are processes.
* Everything listens on loopback, on free ports. Processes are ended by their ids.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from haclient.cluster_url.endpoint import Endpoint

BOTH_DOWN_SECONDS = 30.0
"""Seconds without any member after ``Fault.BOTH_DOWN``. The client must wait that long."""
PAUSE_SECONDS = 10.0
"""Seconds from SIGSTOP to SIGCONT; longer than the programs' heartbeats, so that they notice."""


ALARM_SECONDS = 15.0
"""Seconds; longer than the limit of impatient calls, and than the heartbeats."""
NO_QUORUM_SECONDS = 20.0
"""Seconds; long enough for a node to notice that it is alone."""


class Fault(enum.Enum):
    """The kinds of faults."""

    KILL = "kill"
    """SIGKILL of the primary. In a cluster of one, it is restarted at once."""
    STOP = "stop"
    """A graceful stop, as for an upgrade. In a cluster of one, the member is restarted."""
    FAILBACK = "failback"
    """The killed primary restarts and takes over from the backup. This second outage is measured."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT after ``PAUSE_SECONDS``."""
    SILENCE = "silence"
    """The primary's host loses power: TCP connections stay, but nothing answers."""
    BOTH_DOWN = "both-down"
    """Every member is killed, and restarted after ``BOTH_DOWN_SECONDS``."""
    MOVE = "move"
    """The product's own command moves the mastership to another member."""
    LEADER = "leader"
    """SIGKILL of the node that leads the queues, if every node serves. Clients may be at another node."""
    DRAIN = "drain"
    """The clients' node enters maintenance, as for an upgrade, and leaves it later."""
    CLOSE = "close"
    """An operator closes every connection; the node keeps running."""
    ALARM = "alarm"
    """The broker is out of memory for ``ALARM_SECONDS``: it accepts no messages."""
    NO_QUORUM = "no-quorum"
    """Most nodes are down for ``NO_QUORUM_SECONDS``."""
    VIP = "vip"
    """SIGKILL, with clients that know a single address, which follows the primary."""


class ClusterError(Exception):
    """A member does not start, serve or sync in time. The text has the tails of the logs."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that the broker had stored.

    :ivar id: its message-id, as decoded by proton; ``None`` without one.
    :ivar body: its body, as decoded by proton.
    :ivar delivery_count: the header's count of failed deliveries.
    """

    id: object
    body: object
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Served:
    """A member that accepted the judge's handshake, after refusing one 50 ms earlier.

    :ivar at: when the handshake was complete (``time.monotonic``).
    :ivar since: when it began. A client that dials later meets a member that accepts.
    :ivar endpoint: the address that clients use for the member.
    """

    at: float
    since: float
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Launch:
    """The start parameters of a cluster.

    :ivar folder: the cluster's own folder for data, configuration and logs.
    :ivar fault: the fault that the cluster is made for. ``inject`` accepts this one, and always ``KILL``.
    """

    folder: Path
    fault: Fault = Fault.KILL


class BrokerCluster(Protocol):
    """The members of one product on this machine."""

    @property
    def name(self) -> str:
        """The cluster's name, for example ``artemis-locked``; see ``clusters.NAMES``."""

    @property
    def version(self) -> str:
        """The product's version, for the results."""

    @property
    def url(self) -> str:
        """The cluster URL for haclient: the members or the VIP, credentials, and the product's options."""

    @property
    def detects_duplicates(self) -> bool:
        """True if the broker can store a message once that is sent twice, when the client asks for it."""

    @property
    def faults(self) -> frozenset[Fault]:
        """The faults that apply to the product and by its own promise lose nothing."""

    async def start(self) -> None:
        """Start the members; return when the primary accepts and redundancy is complete.

        :raises ClusterError: if the cluster does not come up; ``stop`` must still be called.
        """

    async def stop(self) -> None:
        """Stop every process, also after a failed start. The folder stays."""

    async def inject(self, fault: Fault) -> float:
        """Inject the fault; return when it is in force.

        :returns: when the outage began (``time.monotonic``).
        """

    async def serving(self) -> Served:
        """Wait until a member accepts a handshake with an Attach, tried every 50 ms."""

    async def whole(self) -> None:
        """Restart the members that are down, and wait until another fault would lose nothing."""

    def queue(self, name: str) -> str:
        """Return the address of the durable queue of this name, which exists or is created on first use."""

    async def drain(self, name: str) -> list[Stored]:
        """Return the messages stored in ``queue(name)``, in order, and remove them."""
