"""The ports of a local cluster: AMQP's ports if they are free, else any free ones.

Rules
-----
* A cluster takes AMQP's ports only if all the ports it wants are free: a mix is harder to explain than a list
  of free ports.
* Two clusters never compete. Each claims its ports before it checks them, with an abstract Unix socket. The
  kernel gives that to one process and releases it when the process ends. So a member that is down, or still
  starting, keeps its port from the next cluster.
* A port counts as taken if a process listens on it at ``::1`` too, since ``localhost`` may resolve to that.

Source: unix(7), "Abstract sockets" (Linux); other systems only check, without a claim.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from haclient.cluster_url.endpoint import AMQP_PORT, Endpoint

_HOST = "127.0.0.1"
_LOOPBACKS = ((socket.AF_INET, _HOST), (socket.AF_INET6, "::1"))


@dataclass(frozen=True, slots=True)
class ClaimedPorts:
    """The addresses on which the members of a cluster listen.

    :param taken_by: the reason for using free ports, a sentence for people; empty for AMQP's ports.
    """

    addresses: tuple[Endpoint, ...]
    taken_by: str = ""


def free_ports(count: int) -> tuple[Endpoint, ...]:
    """Return ``count`` addresses on loopback with port 0, which takes a free port."""
    return (Endpoint(_HOST, 0),) * count


@contextlib.contextmanager
def claimed_ports(count: int, first: int = AMQP_PORT) -> Iterator[ClaimedPorts]:
    """Claim the ports from ``first`` on while the body runs; yield free ports if one of them is taken."""
    ports = range(first, first + count)
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                _claim(port, stack)
                _check(port)
        except OSError as error:
            stack.close()
            yield ClaimedPorts(free_ports(count), f"port {port} is in use ({error.strerror})")
        else:
            yield ClaimedPorts(tuple(Endpoint(_HOST, port) for port in ports))


def _claim(port: int, stack: contextlib.ExitStack) -> None:
    """Keep other clusters on this machine from a port.

    :raises OSError: if another cluster has claimed it.
    """
    if sys.platform == "linux":
        holder = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        holder.bind(f"\0haclient/broker-stub/{port}")


def _check(port: int) -> None:
    """Check that no process listens on a port.

    :raises OSError: if a process does, or this user may not use the port.
    """
    for family, host in _LOOPBACKS:
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # the kernel lacks this family
        with probe:
            # Ignore the last cluster's connections that the kernel still remembers.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen()
            except OSError as error:
                if family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
                    continue  # this host has no ::1
                raise
