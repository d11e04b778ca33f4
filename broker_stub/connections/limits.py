"""Limits on the resources of a member that one client connection may use.

Each limit is an option of ``serve``; docs/broker-stub.md describes the effect of reaching it.

Rule: no limit excludes the cluster-admin or a backup. If a member cannot be probed, its supervisor kills it.
"""

from __future__ import annotations

from dataclasses import dataclass

import proton

from haclient.engine import heartbeat

_MIB = 1024 * 1024
# The highest channel that proton uses is 32767.
MAX_SESSIONS = 32768
# A backup has three links, and a management connection two.
_ADMIN_LINKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one client connection; sizes are in bytes.

    :param sessions: concurrent sessions.
    :param links: concurrent links in all sessions; twice as many including links whose refusal was not
        answered.
    :param unfinished: bytes of messages whose last frame has not arrived.
    :param all_unfinished: the same limit for all connections together.
    :param credit_size: bytes that a client may send on one link, estimated from its latest messages; one
        message is always allowed.
    :param idle_timeout: the shortest idle timeout that a client may request, in seconds.
    """

    # A JMS client has a session for each thread; RabbitMQ allows 2047 channels, Artemis 65535.
    sessions: int = 256
    links: int = 4096
    # One message of the largest size.
    unfinished: int = 256 * _MIB
    all_unfinished: int = 1024 * _MIB
    # Equals the credit of 1000 messages at 16 KiB each.
    credit_size: int = 16 * _MIB
    idle_timeout: float = heartbeat.LEAST_IDLE_TIMEOUT

    def links_of(self, *, admin: bool) -> int:
        """Return the most links of a client, or of the cluster-admin."""
        return max(self.links, _ADMIN_LINKS) if admin else self.links

    def refuse_idle_timeout(self, asked: float) -> proton.Condition | None:
        """Return the condition for a client that requests heartbeats faster than allowed, or ``None``.

        :param asked: requested idle timeout in seconds; 0 for none.
        """
        return heartbeat.refuse_idle_timeout(asked, self.idle_timeout)


DEFAULT_CONNECTION_LIMITS = ConnectionLimits()
