"""The setup of a member's process, in separate processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the table of descriptors is Linux's")

TUNED = """
import resource
from pathlib import Path
from broker_stub.cli import event_loop
limit = min({limit}, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 256), limit))
before = len(list(Path("/proc/self/fd").iterdir()))
event_loop.tune()
[size] = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("FDSize"))
print(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[0], size.split()[1])
print(len(list(Path("/proc/self/fd").iterdir())) - before)
"""


@pytest.mark.parametrize("limit", [700, 5_000, 100_000])
def test_the_table_of_descriptors_does_not_grow_while_clients_come(limit: int) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", TUNED.format(limit=limit)], check=True, capture_output=True, text=True
    ).stdout
    allowed, soft, size, left_open = map(int, printed.split())
    assert soft == allowed
    assert size >= min(allowed, 20_000)
    assert left_open == 0
