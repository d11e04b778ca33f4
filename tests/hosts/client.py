"""One client host: producers and consumers under load, with their history in a file.

    python -m tests.hosts.client '{"url": ..., "journal": FILE, "process": ..., "seed": ..., ...}'

It prints a line when its connections are open. Then it reads commands. ``queue NAME`` makes a queue
with some messages. ``finish`` stops sending, waits for every outcome and exits with 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from tests.faults.clients import Load
from tests.hosts.journal import Journal


async def run(options: dict[str, Any]) -> None:
    """Run the load until told to finish."""
    requests = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    process = options["process"]
    with Path(options["journal"]).open("a") as file:
        journal = Journal(file, process)
        facts = {key: options[key] for key in ("seed", "names", "share", "kept")}
        async with Load(options["url"], journal, prefix=f"{process}/", **facts) as load:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await _serve(requests, load)
            await load.finish()
        journal.close()


async def _serve(requests: asyncio.StreamReader, load: Load) -> None:
    while True:
        word, _space, name = (await requests.readline()).decode().strip().partition(" ")
        load.check()
        if word != "queue":
            return
        await load.make_queue(name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(run(json.loads(sys.argv[1])))
