"""A primary's regular reads of the arbiter, every few seconds and on request (rule 6 of ``generation``).

Rules
-----
* Only a record that was read counts.  If the arbiter is away, hangs or contains nonsense, nothing changes.
* There is one read at a time, so reads do not accumulate while the arbiter hangs.
* A record is compared with the primary's record when the answer arrives, so that the primary's own claims
  count.  A record older than the primary's when the read began means that the arbiter went back in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_stub.election.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.election.generation import ArbiterRecord
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.member.member")


class ArbiterWatch:
    """Watches the arbiter during one term as primary.

    :param held: returns the record that the primary won last.
    :param superseded: returns the reason to step down after a record was read; ``None`` to go on.
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
        """Read once, after any read in progress: the caller may know of a change that the latter missed."""
        for _ in range(1 if self._reading is None else 2):
            await self._read_once()

    def cancel(self) -> None:
        """Stop: the term has ended."""
        self._task.cancel()
        if self._reading is not None:
            self._reading.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._read_once()

    async def _read_once(self) -> None:
        """Join a read in progress, or begin one; it continues if the caller is cancelled."""
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
