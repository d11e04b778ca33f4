"""A forked child that ends by ``sys.exit`` does not change the broker of its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FORK = """
import atexit, os, sys
from pathlib import Path
import haclient
from haclient.testing import broker, ha_pair, in_process_broker

def fork(end):
    pid = os.fork()
    if not pid:
        end()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 7, code

def check(member):
    # Whatever ends it: with the body, by the collector of what was inherited, at the exit of the interpreter.
    fork(lambda: sys.exit(7))
    fork(lambda: (atexit.register(lambda: os._exit(7)), sys.exit(1)))
    with haclient.connect(member.url) as connection:
        connection.create_sender("orders").send("one", timeout=10)
"""

BROKER = """
with broker() as member:
    check(member)
    member.kill()
    member.restart()
    with haclient.connect(member.url) as connection:
        assert connection.create_receiver("orders").receive(timeout=10).message.body == "one"
"""

PAIR = """
with ha_pair() as pair:
    check(pair)
    pair.kill_primary()
    with haclient.connect(pair.url) as connection:
        assert connection.create_receiver("orders").receive(timeout=20).message.body == "one"
"""

IN_PROCESS = """
with in_process_broker() as member:
    check(member)
"""

# proton's API, whose loop has a finalizer at the end of the process.
DROP_IN = """
from proton import Message
from haclient.utils import BlockingConnection

with in_process_broker() as member:
    connection = BlockingConnection(member.url)
    sender = connection.create_sender("orders")
    sender.send(Message(body="one"))
    fork(lambda: sys.exit(7))
    before = connection._binding.engine_count
    sender.send(Message(body="two"))
    assert connection._binding.engine_count == before, "the child has closed the connection"
    connection.close()
"""


def run(program: str, temporary: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK + program],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert list(temporary.iterdir()) == []  # the parent has removed its own files


@pytest.mark.parametrize(
    "program",
    [BROKER, pytest.param(PAIR, marks=pytest.mark.slow), IN_PROCESS, DROP_IN],
    ids=["broker", "pair", "in-process", "drop-in"],
)
def test_a_child_that_exits_leaves_its_parents_broker_and_connection(program: str, tmp_path: Path) -> None:
    run(program, tmp_path)
