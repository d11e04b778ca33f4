"""The ports of a local cluster: those of AMQP when nobody has them, or else free ones.

Rules
-----
* All ports that a cluster wants are free, or it takes none of them: members at 5672 and somewhere else are
  harder to explain than a list of free ports.
* Two clusters never compete: each claims its ports before it looks at them, with an abstract Unix socket that
  the kernel gives to one of them and takes back when its process ends.  So a member that is down, or not up
  yet, keeps its port from the next cluster.
* A port counts as taken when somebody listens on it at ``::1`` too: ``localhost`` may lead there.

Source: unix(7), "Abstract sockets" (Linux); elsewhere there is no claim, only the look.
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
    """Where the members of a cluster listen.

    :param taken_by: why these are free ports, a sentence for people; empty for the ports of AMQP.
    """

    addresses: tuple[Endpoint, ...]
    taken_by: str = ""


def free_ports(count: int) -> tuple[Endpoint, ...]:
    """That many addresses on loopback, each with a free port."""
    return (Endpoint(_HOST, 0),) * count


@contextlib.contextmanager
def claimed_ports(count: int, first: int = AMQP_PORT) -> Iterator[ClaimedPorts]:
    """The ports from ``first`` on, for as long as the body runs; free ones when one of these is taken."""
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
    """Keep other clusters of this machine from a port.

    :raises OSError: when one of them has it.
    """
    if sys.platform == "linux":
        holder = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        holder.bind(f"\0haclient/broker-stub/{port}")


def _check(port: int) -> None:
    """Make sure that nobody listens on a port.

    :raises OSError: when somebody does, or when this user may not.
    """
    for family, host in _LOOPBACKS:
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a kernel without this family
        with probe:
            # Connections of the last cluster that the kernel still remembers are no reason.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen()
            except OSError as error:
                if family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
                    continue  # there is no ::1 here
                raise
