"""Find out which of the serving endpoints belong to the same broker.

The members of a pair may share a container id (Artemis: it is the id of their data).  So an equal id may mean
one broker with two ports, or two brokers that serve at once.  A broker that enforces unique connections
reveals the difference: it refuses a second connection under the container id of an open one.  Only the
process that has the first connection can refuse the second.

Source: OASIS, "AMQP Enforcing Connection Uniqueness Version 1.0": the capability
``sole-connection-for-container``, and the refusal by ``amqp:invalid-field`` that names ``container-id``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from haclient.cli.probe import SOLE_CONNECTION, Finding
from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import Attempt, AttemptCallbacks, ConnectParams
from haclient.core.cluster import Shared
from haclient.core.quirks.products import Quirk, quirks_of
from haclient.discovery.evidence import Failure

# Seconds to wait for a broker's answer to a Close.
_CLOSE_TIMEOUT = 0.25


@dataclass(frozen=True, slots=True)
class Process:
    """A broker process and the serving endpoints that lead to it.

    :param is_certain: whether it is surely a different broker from others with the same container id.
    """

    members: tuple[Finding, ...]
    is_certain: bool = True

    @property
    def container(self) -> str | None:
        """The container id at all these endpoints."""
        return self.members[0].container


async def processes(found: Sequence[Finding], shared: Shared, timeout: float) -> tuple[Process, ...]:
    """Group the serving endpoints by broker.

    :param timeout: seconds for all comparisons; endpoints not compared by then are not certain.
    """
    groups: dict[object, list[Finding]] = {}
    for each in found:
        if each.primary:
            groups.setdefault(each.container or each.endpoint, []).append(each)
    deadline = asyncio.get_running_loop().time() + timeout
    return tuple([part for group in groups.values() for part in await _split(group, shared, deadline)])


async def _split(group: list[Finding], shared: Shared, deadline: float) -> list[Process]:
    """Group endpoints with the same container id by broker."""
    if Quirk.ID_NAMES_PROCESS in quirks_of({"product": group[0].product}):
        return [Process(tuple(group))]
    certain, unclear = [[group[0]]], []
    for each in group[1:]:
        for members in certain:
            verdict = await _compare(members[0], each, shared, deadline)
            if verdict is not False:
                break
        if verdict is None:
            unclear.append(each)
        elif verdict:
            members.append(each)
        else:
            certain.append([each])
    return [*(Process(tuple(members)) for members in certain), *(Process((each,), False) for each in unclear)]


async def _compare(first: Finding, second: Finding, shared: Shared, deadline: float) -> bool | None:
    if not (first.sole_connection and second.sole_connection):
        return None
    try:
        async with asyncio.timeout_at(deadline):
            return await is_one_broker(first.endpoint, second.endpoint, shared)
    except TimeoutError:
        return None


async def is_one_broker(first: Endpoint, second: Endpoint, shared: Shared) -> bool | None:
    """Test if the same process answers at both endpoints; ``None`` if the answers do not decide it.

    Both endpoints must offer ``SOLE_CONNECTION``.  The caller limits the time.
    """
    container_id = f"{shared.client_id}-{uuid.uuid4()}"
    async with _Dial(first, shared, container_id) as one:
        if await one.failure() is not None:
            return None
        async with _Dial(second, shared, container_id) as other:
            failure = await other.failure()
    if failure is None:
        return False
    return True if failure.id_in_use else None


class _Dial:
    """A connection held open under a container id that no other connection may use."""

    def __init__(self, endpoint: Endpoint, shared: Shared, container_id: str) -> None:
        self._container_id = container_id
        self._shared = shared
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Failure | None] = loop.create_future()
        self._ended = asyncio.Event()
        reports = AttemptCallbacks(_ignore, _ignore, _ignore, self._usable, self._failed)
        self._attempt = Attempt(1, endpoint, self._params, shared.cluster.resolver, reports)
        self._task = loop.create_task(self._attempt.run(), name=f"haclient identity {endpoint}")

    async def _params(self, endpoint: Endpoint) -> ConnectParams:
        params = await self._shared.params_provider(endpoint)
        desired = (*params.settings.desired_capabilities, SOLE_CONNECTION)
        settings = replace(params.settings, container_id=self._container_id, desired_capabilities=desired)
        return replace(params, settings=settings)

    def _usable(self, _: int) -> None:
        if not self._answer.done():
            self._answer.set_result(None)

    def _failed(self, _: int, failure: Failure) -> None:
        self._ended.set()
        if not self._answer.done():
            self._answer.set_result(failure)

    async def failure(self) -> Failure | None:
        """Wait for the connection; return ``None`` if it is usable, else the failure."""
        return await self._answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._answer.done() and not self._answer.cancelled() and self._answer.result() is None:
                await self._close()
        finally:
            self._attempt.cancel()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _close(self) -> None:
        assert self._attempt.engine is not None
        self._attempt.engine.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._ended.wait()
        except TimeoutError:
            return


def _ignore(_: int) -> None:
    """Do nothing: only the end of the handshake counts."""
