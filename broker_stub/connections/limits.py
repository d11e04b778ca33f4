"""What one client connection may use of a member.

Each limit is an option of ``serve``; docs/broker-stub.md says what happens at it.

Rule: no limit shuts the cluster-admin out, or a backup: a member that cannot be probed is killed by what
supervises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import proton

from haclient.engine import heartbeat

_MIB = 1024 * 1024
# The highest channel that proton uses is 32767.
MAX_SESSIONS = 32768
# A backup has three, and a connection that manages two.
_ADMIN_LINKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one client connection; sizes are in bytes.

    :param sessions: at a time.
    :param links: at a time, in all sessions; twice as many with those whose refusal was not answered.
    :param unfinished: bytes of messages whose last frame has not arrived.
    :param all_unfinished: the same, of all connections.
    :param credit_size: bytes that a client may send on one link, by the size of its last messages; one
        message in any case.
    :param idle_timeout: the shortest idle time-out that a client may ask for, in seconds.
    """

    # A JMS client has a session for each thread; RabbitMQ allows 2047 channels, Artemis 65535.
    sessions: int = 256
    links: int = 4096
    # One message of the largest size.
    unfinished: int = 256 * _MIB
    all_unfinished: int = 1024 * _MIB
    # As many as the count allows for messages of 16 KiB.
    credit_size: int = 16 * _MIB
    idle_timeout: float = heartbeat.LEAST_IDLE_TIMEOUT

    def links_of(self, *, admin: bool) -> int:
        """The most links of a client, or of the cluster-admin."""
        return max(self.links, _ADMIN_LINKS) if admin else self.links

    def refuse_idle_timeout(self, asked: float) -> proton.Condition | None:
        """The condition for a client that asks for heartbeats faster than allowed.

        :param asked: seconds, 0 for no time-out.
        """
        return heartbeat.refuse_idle_timeout(asked, self.idle_timeout)


DEFAULT_CONNECTION_LIMITS = ConnectionLimits()
