"""Members in network namespaces, joined by a bridge: real packets are really lost.

Each member has an address for each kind of route, so that one can be cut alone: ``198.18.x.n`` for the
manager, ``x + 1`` for clients, ``x + 2`` for the other members (RFC 2544 reserves 198.18.0.0/15 for
tests).

A route is cut by a wrong hardware address for its far end, on both sides. Packets leave but no host
accepts them, and no peer notices, as behind a faulty switch. Only iproute2 is needed. There are no
resets, only losses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.network import CLIENTS, Cut

_PORT = 5672
_NOBODY = "02:00:00:00:de:ad"
_MANAGEMENT, _CLIENTS, _PEERS = 0, 1, 2
_HOST = 254


def unavailable() -> str:
    """Return why this machine allows no namespaces, empty if it does."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    probe = f"haclient-{os.getpid()}"
    try:
        _ip("netns", "add", probe)
    except subprocess.CalledProcessError as error:
        return f"network namespaces need root: {error.stderr.strip()}"
    _ip("netns", "delete", probe)
    return ""


class NamespaceNetwork:
    """A ``Network``.

    :param stem: of the names of everything that is made, at most 10 characters.
    :param subnet: a third of the ``x`` above.
    """

    def __init__(self, members: Sequence[str], stem: str, subnet: int) -> None:
        self.addresses = tuple(
            Endpoint(_address(subnet, _MANAGEMENT, n), _PORT) for n in range(1, len(members) + 1)
        )
        self._numbers = {member: number for number, member in enumerate(members, start=1)}
        self._stem = stem
        self._subnet = subnet
        self._cuts: list[tuple[str, ...]] = []

    def client_addresses(self) -> list[str]:
        """See ``Network``."""
        return [self._at(_CLIENTS, number) for number in self._numbers.values()]

    def peer_addresses(self, member: str) -> list[str]:
        """See ``Network``."""
        return [self._at(_PEERS, number) for other, number in self._numbers.items() if other != member]

    def listen(self, member: str) -> str:
        """See ``Network``."""
        return f"0.0.0.0:{_PORT}"

    def wrapper(self, member: str) -> tuple[str, ...]:
        """See ``Network``."""
        return ("ip", "netns", "exec", self._namespace(self._numbers[member]))

    def cut(self, one: str, other: str, how: Cut) -> None:
        """See ``Network``; always held."""
        kind = _CLIENTS if CLIENTS in {one, other} else _PEERS
        for here, there in ((one, other), (other, one)):
            place = self._place(here)
            far = _HOST if there == CLIENTS else self._numbers[there]
            target = (_address(self._subnet, kind, far), "dev", place[-1])
            _ip(*place[:-1], "neighbour", "replace", *target, "lladdr", _NOBODY, "nud", "permanent")
            self._cuts.append((*place[:-1], "neighbour", "delete", *target))

    def heal(self) -> None:
        """See ``Network``."""
        cuts, self._cuts = self._cuts, []
        for cut in dict.fromkeys(cuts):
            _ip(*cut)

    def build(self, stack: ExitStack) -> None:
        """Make the bridge and the namespaces; the stack removes them."""
        bridge = self._stem
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "delete", bridge)
        self._furnish((), bridge, _HOST)
        for number in self._numbers.values():
            self._build_member(stack, number)

    def _build_member(self, stack: ExitStack, number: int) -> None:
        namespace, cable = self._namespace(number), f"{self._stem}v{number}"
        _ip("netns", "add", namespace)
        stack.callback(_ip, "netns", "delete", namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", cable, "master", self._stem, "up")
        self._furnish(("-n", namespace), "lo", None)
        self._furnish(("-n", namespace), "eth0", number)

    def _furnish(self, place: tuple[str, ...], device: str, number: int | None) -> None:
        _ip(*place, "link", "set", device, "up")
        if number is not None:
            for kind in (_MANAGEMENT, _CLIENTS, _PEERS):
                _ip(*place, "address", "add", f"{_address(self._subnet, kind, number)}/24", "dev", device)

    def _place(self, party: str) -> tuple[str, ...]:
        """Return where to run ``ip`` for a party, and its device."""
        return (self._stem,) if party == CLIENTS else ("-n", self._namespace(self._numbers[party]), "eth0")

    def _namespace(self, number: int) -> str:
        return f"{self._stem}-{number}"

    def _at(self, kind: int, number: int) -> str:
        return f"{_address(self._subnet, kind, number)}:{_PORT}"


@contextmanager
def namespaces(members: Sequence[str]) -> Iterator[NamespaceNetwork]:
    """A network of namespaces; two test runs get different ones."""
    network = NamespaceNetwork(members, f"hac{os.getpid()}", os.getpid() % 80)
    with ExitStack() as stack:
        network.build(stack)
        yield network


def _address(subnet: int, kind: int, number: int) -> str:
    return f"198.18.{3 * subnet + kind}.{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)
