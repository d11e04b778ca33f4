"""Arbiters by URL, and the one in memory."""

from __future__ import annotations

import importlib.util
from urllib.parse import unquote

from broker_stub.election.arbiter.directory import DirectoryArbiter
from broker_stub.election.arbiter.record import Arbiter
from broker_stub.election.generation import ArbiterRecord
from haclient.version import install_extra

# Long enough for a busy disk or an election in ZooKeeper; clients wait for it, so not longer.
TIMEOUT = 5.0

FORMS = "directory:/path, zookeeper:[user:password@]host:port,host:port/path or memory:"


class MemoryArbiter:
    """An arbiter that is an object, for members in one process, which are given the same one."""

    def __init__(self) -> None:
        self._record = ArbiterRecord()

    async def read(self) -> ArbiterRecord:
        """The record."""
        return self._record

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; the loop runs nothing in between."""
        if self._record != expected:
            return False
        self._record = new
        return True

    async def close(self) -> None:
        """Nothing to let go of."""


def open_arbiter(url: str, *, timeout: float = TIMEOUT) -> Arbiter:
    """The arbiter that a URL names.  Nothing is opened or asked before the first call.

    :param url: ``directory:/path``, ``zookeeper:host:port,host:port/path`` or ``memory:``.  The last one
        is new each time: members that shall share it are given the same object.  ZooKeeper's hosts may follow
        ``user:password@``, percent-encoded.
    :param timeout: seconds that a call may take.
    :raises ValueError: for another URL, or when a library is missing; it says which.
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
    """What an error may quote."""
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
