"""The program of the first steps continues when the primary is killed, and loses nothing."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from haclient.testing import HAPair
from tests.docs.pages import DOCS
from tests.examples.program import Program

URL = "amqp://127.0.0.1:5672,127.0.0.1:5673"


def program(page: Path) -> str:
    """Return the program that sends and receives."""
    programs = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = (each for each in programs if URL in each)
    return str(found)


async def test_the_program_goes_on_at_the_other_member(haclient_pair: HAPair, tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(
        program(DOCS / "first-steps.md").replace(URL, haclient_pair.url).replace("sleep(0.2)", "sleep(0.01)")
    )
    received: list[int] = []

    async def follow(running: Program) -> str:
        """Return the member that sent the next message."""
        found = await running.line(r"^received (\d+) from (\S+)")
        received.append(int(found[1]))
        return found[2]

    async with Program.of(sys.executable, "-u", path) as running:
        first = await follow(running)
        await asyncio.to_thread(haclient_pair.kill_primary)
        while await follow(running) == first:
            pass
        for _ in range(20):
            await follow(running)
    assert sorted(set(received)) == list(range(1, max(received) + 1))
