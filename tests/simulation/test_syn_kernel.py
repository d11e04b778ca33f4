"""The model in ``syn`` is compared with this kernel: the times at which it repeats a SYN to a full backlog.

Each case has a network namespace of its own, in a thread, and reads the SYNs from its loopback device.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from haclient.simulation.syn import SYN_GAPS

SETTINGS = Path("/proc/sys/net/ipv4")
NEW_NETWORK, ALL_PACKETS, TIMESTAMP = 0x40000000, 0x0003, 35  # CLONE_NEWNET, ETH_P_ALL, SO_TIMESTAMPNS
SYN_AND_ACK, SYN = 0x12, 0x02
LONGEST = 20.0  # s; the longest wait for a SYN, which is due within four

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace and a packet socket take root"),
    pytest.mark.skipif(
        not (SETTINGS / "tcp_syn_linear_timeouts").exists(),
        reason="this kernel is older than 6.5, and has one of the two ways only",
    ),
]


@contextmanager
def namespace(**settings: int) -> Iterator[None]:
    """Give this thread a network namespace with these kernel settings; it ends with the thread."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
        pytest.skip(f"no network namespace can be had here: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name, value in settings.items():
        (SETTINGS / name).write_text(str(value))
    yield


def next_syn(packets: socket.socket) -> tuple[int, float]:
    """Return the port and the time, in seconds, of the next SYN that leaves."""
    while True:
        frame, ancillary, _, sender = packets.recvmsg(2048, 64)
        ip_header = 4 * (frame[0] & 0x0F)
        if sender[2] != socket.PACKET_OUTGOING or frame[9] != socket.IPPROTO_TCP:
            continue
        (port,) = struct.unpack_from("!H", frame, ip_header)
        if frame[ip_header + 13] & SYN_AND_ACK == SYN:
            seconds, nanoseconds = struct.unpack("@qq", ancillary[0][2])
            return port, seconds + nanoseconds / 1e9


def repeats(count: int, **settings: int) -> Sequence[float]:
    """Return the seconds from each SYN to the next, while the backlog is full."""
    with namespace(**settings), ExitStack() as stack:
        packets = stack.enter_context(
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PACKETS))
        )
        packets.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
        packets.settimeout(LONGEST)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
        for _ in range(2):  # as many as the backlog holds
            stack.enter_context(socket.create_connection(listener.getsockname()))
        late = stack.enter_context(socket.socket())
        late.setblocking(False)
        late.connect_ex(listener.getsockname())
        own = late.getsockname()[1]
        found: list[float] = []
        while len(found) <= count:
            port, time = next_syn(packets)
            found += [time] if port == own else []
    return [later - earlier for earlier, later in pairwise(found)]


def test_the_kernel_repeats_a_syn_as_the_model_does() -> None:
    """Six linear repeats and three exponential ones both end after seven seconds.

    ``tcp_abort_on_overflow`` changes nothing: the kernel still drops the SYN.
    """
    with ThreadPoolExecutor(3) as threads:
        linear = threads.submit(repeats, 6, tcp_syn_linear_timeouts=4, tcp_abort_on_overflow=0)
        aborts = threads.submit(repeats, 6, tcp_syn_linear_timeouts=4, tcp_abort_on_overflow=1)
        older = threads.submit(repeats, 3, tcp_syn_linear_timeouts=0, tcp_abort_on_overflow=0)
    for found, model in ((linear, "linear"), (aborts, "linear"), (older, "exponential")):
        gaps = found.result()
        expected = SYN_GAPS["linear" if model == "linear" else "exponential"][: len(gaps)]
        assert [round(gap) for gap in gaps] == list(expected)
    assert list(accumulate(round(gap) for gap in linear.result())) == [1, 2, 3, 4, 5, 7]
