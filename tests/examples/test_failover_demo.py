"""``make demo``, shorter: the same program with one kill."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "failover_demo.py"


def count(output: str, row: str) -> int:
    """The number in a row of the table at the end."""
    found = re.search(rf"│ {row} +│ ([\d,]+)", output)
    assert found, f"no row {row!r} in:\n{output}"
    return int(found[1].replace(",", ""))


@pytest.mark.slow
async def test_the_demo_kills_the_primary_and_every_send_settles() -> None:
    arguments = ("--kills", "1", "--interval", "1", "--rate", "500", "--plain")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(DEMO), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = (text.decode() for text in await asyncio.wait_for(process.communicate(), 60))

    assert process.returncode == 0, errors
    assert "SIGKILL for member-" in output
    assert "generation 2" in output
    assert count(output, "sent") == count(output, "settled") > 0
    assert count(output, "not settled") == 0
    assert count(output, "settled but missing") == 0
    assert count(output, "received") == count(output, "settled")
    assert "store:       SQLite" in output
    assert "arbiter:     directory:" in output
    assert count(output, "attempts") >= 2
