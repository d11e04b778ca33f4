"""Clients on a separate host during faults: every acknowledged message must be received.

The clients, the history and the checker come from the faults on one machine (``tests.faults``).
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from tests.faults.checker import Verdict, check
from tests.faults.clients import Load, drain
from tests.faults.history import History
from tests.pacemaker.cluster import CLIENTS, Cluster

_GLANCE = 0.1


class Traffic:
    """Producers and consumers that run from the start of the ``with`` block until ``finish``."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._history = History()
        self._finish = threading.Event()
        self._flows = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        self._flows.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish.set()
        self._thread.join()

    def finish(self) -> Verdict:
        """Wait for every outcome, drain the queues, and judge."""
        self._finish.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return check(self._history)

    def _main(self) -> None:
        try:
            # Sockets of this thread and its child threads belong to the clients' host.
            with self._cluster.lab.on(CLIENTS):
                asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - raised where the test waits
            self._failure = error
        finally:
            self._flows.set()

    async def _run(self) -> None:
        cluster = self._cluster
        async with Load(cluster.client_url, self._history, seed=self._seed, names=cluster.names) as load:
            while not self._history.receipts:  # noqa: ASYNC110 - written by the consumers as it comes
                await asyncio.sleep(_GLANCE)
            self._flows.set()
            while not self._finish.is_set():
                load.check()
                await asyncio.sleep(_GLANCE)
            await load.finish()
        await drain(cluster.client_url, self._history)
