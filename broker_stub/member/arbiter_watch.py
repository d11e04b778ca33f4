"""A primary reads the arbiter again, every few seconds and when somebody asks (rule 6 of ``generation``).

Rules
-----
* Only a record that was read decides.  An arbiter that is away, hangs or holds nonsense changes nothing.
* One read at a time: an arbiter that hangs collects none.
* A record is judged against what this primary holds when the answer is there, so that its own claims count.
  One that is older than what it held before it asked comes from an arbiter that went back in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_stub.election.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.election.generation import ArbiterRecord
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.member.member")


class ArbiterWatch:
    """Watches the arbiter for one term as primary.

    :param held: the record that the primary won last.
    :param superseded: why the primary must step down after it read a record; ``None`` to go on.
    :param step_down: called with that reason.
    :param interval: seconds between two reads.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        held: Callable[[], ArbiterRecord],
        superseded: Callable[[ArbiterRecord], str | None],
        step_down: Callable[[str], None],
        interval: float,
    ) -> None:
        self._arbiter = arbiter
        self._held = held
        self._superseded = superseded
        self._step_down = step_down
        self._interval = interval
        self._trouble = ""
        self._reading: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="watch the arbiter")

    async def check(self) -> None:
        """Read once, behind a read that is under way: what the caller knows of may be newer than that."""
        for _ in range(1 if self._reading is None else 2):
            await self._read_once()

    def cancel(self) -> None:
        """The term has ended."""
        self._task.cancel()
        if self._reading is not None:
            self._reading.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._read_once()

    async def _read_once(self) -> None:
        """Join the read that is under way, or begin one; it goes on when its caller is cancelled."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read(), name="read the arbiter")
            self._reading.add_done_callback(self._read_ended)
        await asyncio.wait([self._reading])

    def _read_ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is not None:
            logger.error("reading the arbiter failed", exc_info=reading.exception())

    async def _read(self) -> None:
        before = self._held()
        try:
            record = await self._arbiter.read()
        except ArbiterUnavailableError as error:
            self._report(f"the arbiter cannot be read, this primary goes on: {error}")
            return
        reason = self._superseded(record)
        if reason is not None:
            self._step_down(reason)
        elif record.cluster != before.cluster:
            self._report(
                f"the arbiter holds a record of cluster {record.cluster or 'none'}, this primary is of"
                f" cluster {before.cluster}: put its record back"
            )
        elif record.generation < before.generation:
            self._report(
                f"the arbiter went back to generation {record.generation}, this primary won"
                f" {before.generation}: put its newest record back, or no member can take over"
            )
        else:
            self._report("")

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.error("%s", trouble)
        elif self._trouble and not trouble:
            logger.info("the arbiter can be read again")
        self._trouble = trouble
