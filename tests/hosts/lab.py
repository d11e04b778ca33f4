"""Hosts as network namespaces, joined by a switch in user space with controllable cables.

    with Lab(("a", "b"), seed=1) as lab:
        process = lab.start("a", ("sleep", "60"))
        server = lab.socket("b", socket.SOCK_DGRAM)
        lab.change([("a", "b")], Conditions(loss=0.3))     # one direction only
        lab.change(lab.both("a", "b"), Conditions(cut=True))
        lab.heal()

Rules
-----
* A lab has no names on the machine, and no devices in other namespaces, so any number of labs run
  concurrently. Leaving the lab kills its processes. The namespaces and devices end with the switch's
  process. The kernel does the same after a SIGKILL.
* Each host has an address of 198.18.0.0/24, which RFC 2544 reserves for tests; IPv6 is off.
* Root, iproute2, util-linux and ``/dev/net/tun`` are needed (``missing``); netem is not.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.hosts.switch import CLEAR, Conditions, as_facts

Pair = tuple[str, str]
"""A direction: from the first host to the second."""

_CLONE_NEWNET = 0x40000000
_SOURCES = Path(__file__).resolve().parents[2]
_FIRST_ADDRESS, _LAST_ADDRESS = 1, 254
# Seconds. A busy machine with two cores makes ten hosts in one.
_PATIENCE = 60.0


def missing() -> str:
    """Return a sentence with the lab's missing requirements; empty if there are none."""
    if os.geteuid() != 0:
        return "hosts are network namespaces: run this as root"
    tools = [name for name in ("ip", "nsenter", "setpriv") if shutil.which(name) is None]
    if tools:
        return f"{', '.join(tools)} not found: install iproute2 and util-linux"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened: the kernel needs the module tun"
    try:
        subprocess.run(
            ["unshare", "--net", "true"], check=True, capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.strip()}"
    return ""


class Lab:
    """Hosts, and the cables between them.

    :param hosts: their names, at most 254.
    :param seed: the seed of the cables' random behaviour.
    """

    def __init__(self, hosts: Sequence[str], *, seed: int) -> None:
        if len(hosts) > _LAST_ADDRESS or len(set(hosts)) != len(hosts):
            raise ValueError(f"at most {_LAST_ADDRESS} hosts with different names: {hosts}")
        self.hosts = tuple(hosts)
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._seed = seed
        self._namespaces: list[str] = []
        self._switch: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._processes: list[subprocess.Popen[Any]] = []

    # -- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if reason := missing():
            raise RuntimeError(reason)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_PATIENCE)
        try:
            with theirs:
                self._switch = self._start_switch(theirs.fileno())
            found = json.loads(self._line())
            self._namespaces = [f"/proc/{self._switch.pid}/fd/{number}" for number in found]
        except BaseException:
            self.close()
            raise
        return self

    def _start_switch(self, control: int) -> subprocess.Popen[bytes]:
        module = (sys.executable, "-m", "tests.hosts.switch_process")
        addresses = [self.address(host) for host in self.hosts]
        path = os.pathsep.join(filter(None, (str(_SOURCES), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [*module, str(control), str(self._seed), *addresses],
            pass_fds=(control,),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the processes on the hosts, and remove the hosts."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._processes.clear()
        if self._control is not None:
            self._control.close()
        if self._switch is not None:
            try:
                self._switch.wait(_PATIENCE)
            finally:
                self._switch.kill()
                self._switch.wait()

    # -- hosts ----------------------------------------------------------------------------------

    def address(self, host: str) -> str:
        """Return a host's IPv4 address."""
        return f"198.18.0.{_FIRST_ADDRESS + self._numbers[host]}"

    def wrapper(self, host: str) -> tuple[str, ...]:
        """Return the prefix of a command that is to run on a host.

        The wrapper becomes the command, with the same process id. The kernel kills it when the thread
        that started it ends.
        """
        namespace = self._namespaces[self._numbers[host]]
        return ("nsenter", f"--net={namespace}", "--", "setpriv", "--pdeathsig", "KILL", "--")

    def start(self, host: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process on a host; it is killed when the lab is left.

        :param options: options of ``subprocess.Popen``.
        """
        process = subprocess.Popen([*self.wrapper(host), *command], **options)
        self._processes.append(process)
        return process

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Move this thread to a host for the block: sockets made meanwhile belong there as long as they
        exist.

        Threads and processes started meanwhile are on that host too.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(self._namespaces[self._numbers[host]])
            yield
        finally:
            _enter(f"/proc/self/fd/{before}")
            os.close(before)

    def socket(self, host: str, kind: socket.SocketKind) -> socket.socket:
        """An IPv4 socket on a host."""
        with self.on(host):
            return socket.socket(socket.AF_INET, kind)

    # -- cables ------------------------------------------------------------------------------------

    def change(self, pairs: Iterable[Pair], conditions: Conditions) -> None:
        """Replace the conditions of these directions; return when the switch has applied them."""
        numbers = [[self._numbers[source], self._numbers[target]] for source, target in pairs]
        self._ask({"change": numbers, "conditions": as_facts(conditions)})

    def heal(self) -> None:
        """Reset every cable to perfect conditions."""
        self.change(self.between(self.hosts, self.hosts), CLEAR)

    def both(self, one: str, other: str) -> list[Pair]:
        """Return the two directions between two hosts."""
        return [(one, other), (other, one)]

    def between(self, some: Iterable[str], others: Sequence[str]) -> list[Pair]:
        """Return every direction from one of ``some`` to one of ``others``."""
        return [(one, other) for one in some for other in others if one != other]

    def counts(self) -> dict[Pair, dict[str, int]]:
        """Return the counts of frames by fate, for each direction that carried any."""
        rows = self._ask({"counts": True})["counts"]
        return {(self.hosts[source], self.hosts[target]): counts for source, target, counts in rows}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._control is not None, "the lab was not entered"
        self._control.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> bytes:
        """Read one line from the switch, which sends only answers."""
        assert self._control is not None
        line = bytearray()
        while not line.endswith(b"\n"):
            data = self._control.recv(65_536)
            if not data:
                raise RuntimeError("the switch has ended; its error is on standard error")
            line += data
        return bytes(line)


def _enter(namespace: str) -> None:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, f"{namespace}: {os.strerror(error)}")
    finally:
        os.close(descriptor)
