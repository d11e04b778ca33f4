"""The network address of a member, as it is written and as it goes over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proton import symbol, ushort

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port, TLS or not.

    :param host: a name or an IP literal, without brackets.
    :param port: 0 asks for a free one where something listens.
    """

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``[amqp://|amqps://]host:port``; an IPv6 literal stands in brackets.

        :raises ValueError: when it is not that.
        """
        scheme, separator, rest = text.rpartition("://")
        if separator and scheme not in ("amqp", "amqps"):
            raise ValueError(f"{text!r}: the scheme must be amqp or amqps")
        host, separator, port = rest.rstrip("/").rpartition(":")
        if not separator or not host or not port.isdecimal() or int(port) > _MAX_PORT:
            raise ValueError(f"{text!r} is not host:port")
        if host.startswith("["):
            host = host.removeprefix("[").removesuffix("]")
        elif ":" in host:
            raise ValueError(f"{text!r}: an IPv6 address goes in brackets")
        return cls(host, int(port), tls=scheme == "amqps")

    @property
    def authority(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def wire(self) -> dict[str, Any]:
        """As in a redirect's info map and in ``failover-server-list`` (AMQP 1.0 part 2, 2.8.16)."""
        return {
            symbol("network-host"): self.host,
            symbol("port"): ushort(self.port),
            symbol("hostname"): self.host,
            symbol("scheme"): "amqps" if self.tls else "amqp",
        }

    def __str__(self) -> str:
        return f"{'amqps' if self.tls else 'amqp'}://{self.authority}"
