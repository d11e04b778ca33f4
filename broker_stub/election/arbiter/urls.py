"""Opens an arbiter by URL; the arbiter in memory."""

from __future__ import annotations

import importlib.util
from urllib.parse import unquote

from broker_stub.election.arbiter.directory import DirectoryArbiter
from broker_stub.election.arbiter.record import Arbiter
from broker_stub.election.generation import ArbiterRecord
from haclient.version import install_extra

# Seconds: long enough for a busy disk or an election in ZooKeeper; not longer, since clients wait for it.
TIMEOUT = 5.0

FORMS = "directory:/path, zookeeper:[user:password@]host:port,host:port/path or memory:"


class MemoryArbiter:
    """An arbiter in memory, for members in one process that share the object."""

    def __init__(self) -> None:
        self._record = ArbiterRecord()

    async def read(self) -> ArbiterRecord:
        """Return the record."""
        return self._record

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; the loop runs nothing in between."""
        if self._record != expected:
            return False
        self._record = new
        return True

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def open_arbiter(url: str, *, timeout: float = TIMEOUT) -> Arbiter:
    """Return the arbiter that a URL names; it connects only at the first call.

    :param url: ``directory:/path``, ``zookeeper:host:port,host:port/path`` or ``memory:``. A ``memory:``
        arbiter is new each time: to share it, give members the same object. ``user:password@``,
        percent-encoded, may precede ZooKeeper's hosts.
    :param timeout: seconds that a call may take.
    :raises ValueError: for another URL, or if a library is missing; the text names it.
    """
    kind, colon, rest = url.partition(":")
    match kind if colon else "":
        case "directory" if rest:
            return DirectoryArbiter(rest, timeout=timeout)
        case "zookeeper":
            hosts, slash, path = rest.partition("/")
            if hosts and path.strip("/"):
                return _zookeeper(hosts, slash + path.strip("/"), timeout)
        case "memory" if not rest:
            return MemoryArbiter()
    raise ValueError(f"{_without_credentials(url)!r} names no arbiter; it is one of {FORMS}")


def _without_credentials(url: str) -> str:
    """Return the URL without credentials, for an error message."""
    kind, colon, rest = url.partition(":")
    _, at, hosts = rest.rpartition("@")
    return f"{kind}{colon}...@{hosts}" if at else url


def _zookeeper(hosts: str, path: str, timeout: float) -> Arbiter:
    if importlib.util.find_spec("kazoo") is None:
        raise ValueError(f"an arbiter in ZooKeeper needs kazoo: {install_extra('zookeeper')}")
    from broker_stub.election.arbiter.zookeeper import ZooKeeperArbiter  # noqa: PLC0415  (imports kazoo)

    named, at, hosts = hosts.rpartition("@")
    user, _, password = named.partition(":")
    if at and not (user and password and hosts):
        raise ValueError(
            "the user of ZooKeeper comes with a password: zookeeper:USER:PASSWORD@HOST:PORT/PATH"
        )
    credentials = (unquote(user), unquote(password)) if at else None
    if credentials is not None and ":" in credentials[0]:
        raise ValueError("the name of a user of ZooKeeper has no colon")
    return ZooKeeperArbiter(hosts, path, timeout=timeout, credentials=credentials)
