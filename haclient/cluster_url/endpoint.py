"""The network endpoint of a member, and how this client learnt of it.

An ``Endpoint`` is a plain fact: host, port, TLS or not.  Two endpoints are equal if these three agree.  The
name that TLS must verify and the origin do not count, because the same member is often known by its URL *and*
by a redirect.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

# IANA service names "amqp" and "amqps"; AMQP 1.0 part 5, sections 5.2.1 and 5.3.5.
AMQP_PORT = 5672
AMQPS_PORT = 5671


class Origin(enum.Enum):
    """How an endpoint became known."""

    SEED = "seed"
    """Written in the cluster URL."""
    RESOLVED = "resolved"
    """An address that DNS returned for a name of the seed list."""
    PUSHED = "pushed"
    """In the ``failover-server-list`` of a member's Open."""
    REDIRECT = "redirect"
    """Named by a passive member."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address that may be a member.

    :param host: a host name or an IP literal without brackets, lower case.
    :param port: TCP port, 1 to 65535.
    :param tls: whether the connection starts with a TLS handshake.
    :param server_name: the name that the certificate must carry and that SNI sends; empty means ``host``.
        For an address found by DNS it is the name the user wrote, for a redirect the ``hostname`` of the
        redirect.
    :param origin: how it became known.
    """

    host: str
    port: int
    tls: bool = False
    server_name: str = field(default="", compare=False)
    origin: Origin = field(default=Origin.SEED, compare=False)

    @property
    def tls_name(self) -> str:
        """The name to verify in the peer's certificate."""
        return self.server_name or self.host

    def with_origin(self, origin: Origin) -> Endpoint:
        """Return the same endpoint with another origin."""
        return replace(self, origin=origin)

    @property
    def authority(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{'amqps' if self.tls else 'amqp'}://{self.authority}"
