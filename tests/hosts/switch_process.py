"""The process that makes the hosts and carries their frames. Only ``lab.Lab`` starts it.

    python -m tests.hosts.switch_process CONTROL-FD SEED ADDRESS...

It makes one network namespace for each host, with a TAP device ``eth0``, and keeps both only by open
files. They have no names, so the kernel removes them when this process and all processes in them have
ended. It ends whenever the far end of its control socket is closed.

On the control socket each line of JSON is a request with one line of answer. The namespaces are sent
first. The requests are ``{"change": [[source, target], ...], "conditions": {...}}`` and ``{"counts":
true}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.hosts.switch import Conditions, Switch

# linux/if_tun.h and linux/sched.h
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_FRAME = 65_536
# Frames of one host that are carried before the next host's.
_TURN = 64
_OWN_NAMESPACE = "/proc/thread-self/ns/net"


def hardware_address(host: int) -> bytes:
    """Return a locally administered, numbered address."""
    return bytes((2, 0, 0, 0, host >> 8, host & 0xFF))


def _unshare() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, f"a network namespace: {os.strerror(error)}")


def _make_host(number: int, address: str) -> tuple[int, int]:
    """Make a host's namespace and enter it; return the namespace and its device."""
    _unshare()
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TAP | _IFF_NO_PI))
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    mac = hardware_address(number).hex(":")
    commands = (
        "link set dev lo up",
        f"link set dev eth0 address {mac}",
        "link set dev eth0 up",
        f"address add {address}/24 broadcast + dev eth0",
    )
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, timeout=30)
    return os.open(_OWN_NAMESPACE, os.O_RDONLY), tap


def _make_hosts(addresses: list[str]) -> tuple[list[int], list[int]]:
    here = os.open(_OWN_NAMESPACE, os.O_RDONLY)
    made = [_make_host(number, address) for number, address in enumerate(addresses)]
    if ctypes.CDLL(None, use_errno=True).setns(here, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "back to the first namespace")
    os.close(here)
    return [namespace for namespace, _tap in made], [tap for _namespace, tap in made]


class _Carrier:
    """Moves frames between devices and the switch."""

    def __init__(self, switch: Switch, taps: list[int], control: socket.socket) -> None:
        self._switch = switch
        self._taps = taps
        self._control = control
        self._requests = control.makefile("r")
        self._undelivered = 0

    def run(self) -> None:
        """Carry frames until the control socket is closed."""
        poll = select.epoll()
        ports = {tap: port for port, tap in enumerate(self._taps)}
        for fd in (*ports, self._control.fileno()):
            poll.register(fd, select.EPOLLIN)
        while True:
            for fd, _events in poll.poll(self._timeout()):
                if fd in ports:
                    self._read(ports[fd], fd)
                elif not self._answer():
                    return
            self._deliver()

    def _timeout(self) -> float:
        due = self._switch.next_due()
        return -1 if due is None else max(0.0, due - time.monotonic())

    def _read(self, port: int, tap: int) -> None:
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TURN):
                self._switch.take(port, os.read(tap, _FRAME), now)

    def _deliver(self) -> None:
        for port, frame in self._switch.due(time.monotonic()):
            try:
                os.write(self._taps[port], frame)
            except OSError:  # its device is down, or out of memory
                self._undelivered += 1

    def _answer(self) -> bool:
        """Answer one request; return false at the end of the input."""
        line = self._requests.readline()
        if not line:
            return False
        request: dict[str, Any] = json.loads(line)
        answer: dict[str, Any] = {}
        if "change" in request:
            pairs = [(source, target) for source, target in request["change"]]
            self._switch.change(pairs, Conditions(**request["conditions"]))
        else:
            answer = {"counts": list(self._switch.counts()), "undelivered": self._undelivered}
        self._control.sendall(json.dumps(answer).encode() + b"\n")
        return True


def main() -> None:
    """Make the hosts, report them, and carry their frames."""
    # The lab handles Ctrl-C and the end of a test run. It closes the socket when the hosts are not needed.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, seed, *addresses = sys.argv[1:]
    control = socket.socket(fileno=int(descriptor))
    namespaces, taps = _make_hosts(addresses)
    hardware = [hardware_address(number) for number in range(len(addresses))]
    control.sendall(json.dumps(namespaces).encode() + b"\n")
    _Carrier(Switch(hardware, int(seed)), taps, control).run()


if __name__ == "__main__":
    main()
