"""An arbiter that is an object, for members in one process."""

from __future__ import annotations

from broker_stub.election.generation import ArbiterRecord


class MemoryArbiter:
    """The record in memory, shared by members with the same object; it ends with the process."""

    def __init__(self) -> None:
        self._record = ArbiterRecord()

    async def read(self) -> ArbiterRecord:
        """Return the record."""
        return self._record

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; atomic, because it does not await."""
        if self._record != expected:
            return False
        self._record = new
        return True

    async def close(self) -> None:
        """Do nothing: there is no resource to release."""
