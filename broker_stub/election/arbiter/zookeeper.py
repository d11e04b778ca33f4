"""An arbiter in ZooKeeper, through kazoo.

    PATH/record       the record; compare-and-set compares its version
    PATH/initialised  made with the first record: if ``record`` is missing, it was lost

Rules
-----
* Each call has its own session. Calls are rare, and a session takes milliseconds. In a session left open,
  kazoo keeps requests while it reconnects, and would apply later a request that its caller has abandoned.
* A read follows ``sync``: a server may lag behind the ensemble.
* If the connection is lost during a set, the record is read back. No other member uses the claim, so the
  record shows whether it was set. Once a session has moved to a new connection, ZooKeeper accepts no request
  from its old one. So the record read then is final.
* Without an answer in time, the outcome is unknown.
* With user and password, only that user can read, write or delete the nodes. Nodes made by an arbiter without
  credentials become that user's with the next set. Without credentials, every client that reaches ZooKeeper
  can write the record.

Sources: ZooKeeper Programmer's Guide, "Consistency Guarantees", "ZooKeeper Sessions" and "ACL".
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from broker_stub.election.arbiter.record import ArbiterUnavailableError, decode, encode
from broker_stub.election.arbiter.threads import Threads
from broker_stub.election.generation import ArbiterRecord

T = TypeVar("T")

# The share of a call's time that one server may be silent; the rest is for another server.
_SESSION_SHARE = 0.4

_INITIALISED = b"The generation record of a haclient cluster is beside this node. Do not delete it."


class ZooKeeperArbiter:
    """The record in ZooKeeper.

    :param hosts: ``host:port,host:port``.
    :param path: the parent of the nodes; created if necessary.
    :param timeout: seconds that a call may take.
    :param credentials: user and password, for ZooKeeper's scheme ``digest``; ``None`` for none.
    """

    def __init__(
        self, hosts: str, path: str, *, timeout: float, credentials: tuple[str, str] | None = None
    ) -> None:
        self._hosts = hosts
        self._path = path
        self._timeout = timeout
        self._credentials = credentials
        self._threads = Threads()

    async def read(self) -> ArbiterRecord:
        """Return the record."""
        return await self._ask(lambda session: session.repeat(session.read)[0])

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; return whether it was."""
        return await self._ask(lambda session: session.compare_and_set(expected, new))

    async def close(self) -> None:
        """Do nothing: no resource stays open between calls."""

    async def _ask(self, question: Callable[[_Session], T]) -> T:
        try:
            return await self._threads.run(
                lambda deadline: self._answer(question, deadline), timeout=self._timeout
            )
        except (TimeoutError, KazooTimeoutError):
            text = f"ZooKeeper at {self._hosts} did not answer within {self._timeout:g} s"
            raise ArbiterUnavailableError(text) from None
        except NoAuthError:
            text = f"ZooKeeper at {self._hosts} refused: the nodes in {self._path} are another user's"
            raise ArbiterUnavailableError(
                f"{text}; the arbiter is zookeeper:USER:PASSWORD@HOST:PORT/PATH"
            ) from None
        except KazooException as error:
            text = f"ZooKeeper at {self._hosts} refused: {type(error).__name__} {error}"
            raise ArbiterUnavailableError(text) from error

    def _answer(self, question: Callable[[_Session], T], deadline: float) -> T:
        credentials = self._credentials
        auth = None if credentials is None else [("digest", ":".join(credentials))]
        acl = None if credentials is None else [make_digest_acl(*credentials, all=True)]
        client = KazooClient(
            self._hosts, timeout=self._timeout * _SESSION_SHARE, auth_data=auth, default_acl=acl
        )
        try:
            if not client.start_async().wait(deadline - time.monotonic()):
                raise TimeoutError
            return question(_Session(client, self._path, deadline, acl))
        finally:
            # Closing the session takes long if the server does not answer.
            threading.Thread(target=_stop, args=(client,), name="arbiter-goodbye", daemon=True).start()


class _Session:
    """One client, for one call.

    :param acl: the ACL of every node; ``None`` without credentials.
    """

    def __init__(self, client: Any, path: str, deadline: float, acl: list[Any] | None) -> None:
        self._acl = acl
        self._client = client
        self._path = path
        self._record = f"{path}/record"
        self._initialised = f"{path}/initialised"
        self._deadline = deadline

    def read(self) -> tuple[ArbiterRecord, int | None]:
        """Return the record and its version, which is ``None`` if there was never one."""
        self._wait(self._client.sync_async(self._path))
        with contextlib.suppress(NoNodeError):
            data, stat = self._wait(self._client.get_async(self._record))
            return decode(data, self._record), stat.version
        if self._wait(self._client.exists_async(self._initialised)) is None:
            return ArbiterRecord(), None
        # Both nodes are made at once, perhaps between the two reads.
        if self._wait(self._client.exists_async(self._record)) is not None:
            return self.read()
        raise ArbiterUnavailableError(f"{self._record} is missing in ZooKeeper: it was deleted")

    def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; repeat until the outcome is known."""
        asked = False

        def attempt() -> bool | None:
            nonlocal asked
            record, version = self.read()
            if record != expected:
                return asked and record == new
            asked = True
            return self._replace(new, version) or None

        return self.repeat(attempt)

    def repeat(self, attempt: Callable[[], T | None]) -> T:
        """Repeat an attempt after a lost connection, and while it returns no result."""
        while True:
            with contextlib.suppress(ConnectionLoss, SessionExpiredError):
                result = attempt()
                if result is not None:
                    return result
            if time.monotonic() > self._deadline:
                raise TimeoutError

    def _replace(self, new: ArbiterRecord, version: int | None) -> bool:
        if version is None:
            return self._create(new)
        for node in (self._path, self._initialised, self._record):
            self._restrict(node)
        try:
            self._wait(self._client.set_async(self._record, encode(new), version=version))
        except BadVersionError:
            return False
        return True

    def _create(self, new: ArbiterRecord) -> bool:
        parent, _, _ = self._path.rpartition("/")
        if parent:  # the parent may have arbiters of other clusters, with other credentials
            self._wait(self._client.ensure_path_async(parent, acl=OPEN_ACL_UNSAFE))
        self._wait(self._client.ensure_path_async(self._path))
        self._restrict(self._path)
        both = self._client.transaction()
        both.create(self._record, encode(new))
        both.create(self._initialised, _INITIALISED)
        results = self._wait(both.commit_async())
        failures = [result for result in results if isinstance(result, Exception)]
        if not failures:
            return True
        if any(isinstance(failure, NodeExistsError) for failure in failures):
            return False
        raise failures[0]

    def _restrict(self, node: str) -> None:
        """Give a node to the user of the credentials; a missing node is no error."""
        if self._acl is None:
            return
        with contextlib.suppress(NoNodeError):
            found, _ = self._wait(self._client.get_acls_async(node))
            if found != self._acl:
                self._wait(self._client.set_acls_async(node, self._acl))

    def _wait(self, answer: Any) -> Any:
        return answer.get(timeout=max(0.0, self._deadline - time.monotonic()))


def _stop(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.stop()
    with contextlib.suppress(Exception):
        client.close()
