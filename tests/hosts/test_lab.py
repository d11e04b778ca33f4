"""Hosts reach each other as their cables allow, and nothing of a lab outlives it."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.hosts.lab import Lab, missing
from tests.hosts.switch import Conditions

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

_PATIENCE = 30.0
_PORT = 7  # a fixed port, as no other program is on these hosts
_LAST = 2**31


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(("a", "b", "c"), seed=1) as lab:
        yield lab


@pytest.fixture
def clear(lab: Lab) -> Lab:
    lab.heal()
    return lab


class Talk:
    """A datagram socket on each of these hosts."""

    def __init__(self, lab: Lab, *hosts: str) -> None:
        self.lab = lab
        self.sockets = {host: lab.socket(host, socket.SOCK_DGRAM) for host in hosts}
        for host, each in self.sockets.items():
            each.settimeout(_PATIENCE)
            each.bind((lab.address(host), _PORT))

    def __enter__(self) -> Self:
        # Exchange hardware addresses first, so that every later datagram is one frame.
        for one, other in itertools.permutations(self.sockets, 2):
            self.send(one, other, 0)
            assert self.received(other, 1) == [0]
        return self

    def __exit__(self, *_exc: object) -> None:
        for each in self.sockets.values():
            each.close()

    def send(self, source: str, target: str, *numbers: int) -> None:
        for number in numbers:
            self.sockets[source].sendto(number.to_bytes(4), (self.lab.address(target), _PORT))

    def received(self, host: str, count: int) -> list[int]:
        return [int.from_bytes(self.sockets[host].recv(100)) for _ in range(count)]


def test_without_faults_datagrams_arrive_in_order(clear: Lab) -> None:
    with Talk(clear, "a", "b") as talk:
        talk.send("a", "b", *range(100))
        assert talk.received("b", 100) == list(range(100))


def test_with_all_loss_nothing_arrives(clear: Lab) -> None:
    with Talk(clear, "a", "b") as talk:
        clear.change([("a", "b")], Conditions(loss=1.0))
        talk.send("a", "b", *range(20))
        _wait_for(lambda: clear.counts()["a", "b"].get("lost", 0) >= 20)
        clear.heal()
        talk.send("a", "b", _LAST)
        assert talk.received("b", 1) == [_LAST]


def test_a_cut_of_one_direction_leaves_the_other(clear: Lab) -> None:
    with Talk(clear, "a", "b") as talk:
        clear.change([("a", "b")], Conditions(cut=True))
        talk.send("a", "b", 1, 2, 3)
        talk.send("b", "a", 4)
        assert talk.received("a", 1) == [4]
        _wait_for(lambda: clear.counts()["a", "b"].get("cut", 0) >= 3)
        clear.heal()
        talk.send("a", "b", 5)
        assert talk.received("b", 1) == [5]


def test_a_partition_of_two_hosts_leaves_the_third_to_both(clear: Lab) -> None:
    with Talk(clear, "a", "b", "c") as talk:
        clear.change(clear.both("a", "b"), Conditions(cut=True))
        talk.send("a", "b", 1)
        talk.send("b", "a", 2)
        talk.send("a", "c", 3)
        assert talk.received("c", 1) == [3]
        talk.send("b", "c", 4)
        assert talk.received("c", 1) == [4]
        _wait_for(lambda: all(clear.counts()[pair].get("cut", 0) for pair in clear.both("a", "b")))
        clear.heal()
        talk.send("a", "b", 5)
        assert talk.received("b", 1) == [5]


def test_reordering_shows_in_the_numbers_and_loses_nothing(clear: Lab) -> None:
    with Talk(clear, "a", "b") as talk:
        clear.change([("a", "b")], Conditions(reorder=0.2, hold_back=0.02))
        talk.send("a", "b", *range(200))
        numbers = talk.received("b", 200)
        assert sorted(numbers) == list(range(200))
        assert numbers != sorted(numbers)


def test_a_delay_is_at_least_what_was_asked_for(clear: Lab) -> None:
    with Talk(clear, "a", "b") as talk:
        clear.change([("a", "b")], Conditions(delay=0.2))
        began = time.monotonic()
        talk.send("a", "b", 1)
        talk.received("b", 1)
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(),
        Conditions(delay=0.005, jitter=0.005, loss=0.02, reorder=0.05, hold_back=0.01, duplicate=0.05),
    ],
    ids=["clear", "bad"],
)
def test_tcp_brings_every_byte(clear: Lab, conditions: Conditions) -> None:
    data = os.urandom(1 << 20) * (8 if conditions == Conditions() else 1)
    clear.change(clear.both("a", "b"), conditions)
    listener = clear.socket("b", socket.SOCK_STREAM)
    with listener, clear.socket("a", socket.SOCK_STREAM) as client:
        listener.bind((clear.address("b"), 0))
        listener.listen()
        client.settimeout(_PATIENCE)
        client.connect(listener.getsockname())
        server, _address = listener.accept()
        began = time.monotonic()
        sending = threading.Thread(target=_send_all, args=(client, data))
        sending.start()
        with server:
            server.settimeout(_PATIENCE)
            received = b"".join(iter(lambda: server.recv(1 << 16), b""))
        sending.join()
        seconds = time.monotonic() - began
    print(f"{len(data) / seconds / 1e6:.1f} MB/s over TCP: {clear.counts()['a', 'b']}")  # noqa: T201 - with -s
    assert received == data


def _send_all(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def test_a_process_runs_on_its_host(clear: Lab) -> None:
    process = clear.start("b", ("ip", "-4", "-oneline", "address", "show"), stdout=subprocess.PIPE, text=True)
    text = process.communicate(timeout=_PATIENCE)[0]
    assert clear.address("b") in text
    assert clear.address("a") not in text


_CRASHING = """
import signal, subprocess, sys
from tests.hosts.lab import Lab
def leave(*_):
    raise SystemExit(3)
signal.signal(signal.SIGTERM, leave)
with Lab(("a", "b"), seed=1) as lab:
    command = ("sh", "-c", "echo; exec sleep 1000")
    processes = [lab.start(host, command, stdout=subprocess.PIPE) for host in lab.hosts]
    for process in processes:
        process.stdout.readline()
    print(lab._switch.pid, *(process.pid for process in processes), flush=True)
    sys.stdin.read()
    raise RuntimeError("as a test that fails")
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, None], ids=["SIGTERM", "SIGKILL", "failure"])
def test_nothing_of_a_lab_outlives_it(end: signal.Signals | None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", _CRASHING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        _switch, *pids = map(int, owner.stdout.readline().split())
        namespaces = [_namespace(pid) for pid in pids]
        assert len({*namespaces, _namespace(os.getpid())}) == 3
        if end is None:
            owner.stdin.close()
        else:
            owner.send_signal(end)
        owner.wait(_PATIENCE)
        # After SIGKILL the owner cannot clean up: the kernel does, a moment later.
        _wait_for(lambda: not any(_is_running(pid) for pid in (_switch, *pids)))
        assert not set(namespaces) & set(_all_namespaces())


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def _all_namespaces() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            yield str(path.readlink())


def _is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_for(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
