"""Takes one generation after another: ``python -m tests.broker_stub.election.arbiter.contender URL``.

It prints the number of each generation that it wins, and ends when the record is at the last one.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from broker_stub.election.arbiter import open_arbiter
from broker_stub.election.generation import ArbiterRecord


async def contend(url: str, last: int) -> None:
    arbiter = open_arbiter(url, timeout=30.0)
    record = await arbiter.read()
    while record.generation < last:
        asked = ArbiterRecord(record.generation + 1, uuid.uuid4().hex)
        if await arbiter.compare_and_set(record, asked):
            sys.stdout.write(f"{asked.generation} {asked.claim}\n")
            sys.stdout.flush()
        record = await arbiter.read()
    await arbiter.close()


if __name__ == "__main__":
    asyncio.run(contend(sys.argv[1], int(sys.argv[2])))
