"""Runs hostile clients until its input ends: ``python -m tests.hostile.clients.process OPTIONS``.

    {"addresses": ["127.0.0.1:5672"], "seed": 7, "queues": ["hostile"], "shared": "", "acts": [],
     "clients": 3, "pause": 0.1}

Each client draws its acts from its own seed, and pauses for ``pause`` seconds after each. One more
client empties the queues, so that they do not fill forever. At the end it prints, in JSON, the number
of acts by act and result.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import traceback
from collections import Counter
from typing import Any

from broker_stub.amqp.endpoints import parse_endpoint
from tests.hostile.clients.acts import ACTS, Ground, bounded, draw, perform, take_everything

_TAKING = "take_everything"
_TAKE_EVERY = 2.0


async def act(options: dict[str, Any], number: int, ends: Counter[str], wrong: list[str]) -> None:
    """Run one client forever."""
    rng = random.Random(f"{options['seed']} {number}")
    addresses = [parse_endpoint(address) for address in options["addresses"]]
    names = options["acts"] or list(ACTS)
    while True:
        name = draw(names, rng)
        ground = Ground(rng.choice(addresses), tuple(options["queues"]), options["shared"])
        try:
            ends[f"{name}: {await perform(name, ground, rng)}"] += 1
        except Exception:  # noqa: BLE001 - a mistake in an act, and not of the member
            wrong.append(f"{name}: {traceback.format_exc()}")
            return
        await asyncio.sleep(options["pause"])


async def take(options: dict[str, Any], ends: Counter[str]) -> None:
    """Empty the queues, forever."""
    addresses = [parse_endpoint(address) for address in options["addresses"]]
    while True:
        for address in addresses:
            ends[f"{_TAKING}: {await bounded(take_everything(address, options['queues']))}"] += 1
        await asyncio.sleep(_TAKE_EVERY)


async def main(options: dict[str, Any]) -> None:
    """Run the clients until the input ends."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    tasks = [asyncio.create_task(act(options, n, ends, wrong)) for n in range(options["clients"])]
    tasks.append(asyncio.create_task(take(options, ends)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    sys.stdout.write(json.dumps({"ends": ends, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    # asyncio logs a warning for each write to a connection that the member has ended.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(main(json.loads(sys.argv[1])))
