"""Counts the SYNs that reach a port of this machine over loopback, with their times.

It uses a packet socket, so it needs Linux and the right to open one (``CAP_NET_RAW``). The kernel filters:
only SYNs to the port reach this process.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
import time
from array import array
from types import TracebackType
from typing import Self

_ALL_PACKETS = 0x0003  # ETH_P_ALL
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_FORCE_BUFFER = 33  # SO_RCVBUFFORCE
_STATISTICS = 6  # PACKET_STATISTICS
_PACKET_LEVEL = 263  # SOL_PACKET
_BUFFER = 16 * 1024 * 1024
_TIMEOUT = 0.2
_TCP, _SYN_AND_ACK, _SYN, _FRAGMENT = 6, 0x12, 0x02, 0x1FFF
# Linux, Documentation/networking/filter.rst
_LOAD_BYTE, _LOAD_HALF, _LOAD_X_HEADER = 0x30, 0x28, 0xB1
_LOAD_BYTE_AT_X, _LOAD_HALF_AT_X = 0x50, 0x48
_IS, _HAS, _AND, _RETURN = 0x15, 0x45, 0x54, 0x06


def _program(port: int) -> list[tuple[int, int, int, int]]:
    """Return instructions: code, jump if true, jump if false, operand; packets begin with the IP header."""
    return [
        (_LOAD_BYTE, 0, 0, 9),  # the protocol
        (_IS, 0, 8, _TCP),
        (_LOAD_HALF, 0, 0, 6),
        (_HAS, 6, 0, _FRAGMENT),
        (_LOAD_X_HEADER, 0, 0, 0),
        (_LOAD_HALF_AT_X, 0, 0, 2),  # the destination port
        (_IS, 0, 3, port),
        (_LOAD_BYTE_AT_X, 0, 0, 13),  # the flags
        (_AND, 0, 0, _SYN_AND_ACK),
        (_IS, 1, 0, _SYN),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, 64),
    ]


class SynCounter:
    """Counts while used as a context manager.

    :ivar times: monotonic times, in seconds.
    :ivar missed: packets dropped by the kernel for lack of room.
    """

    def __init__(self, port: int) -> None:
        self.times = array("d")
        self.missed = 0
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="SYNs", daemon=True)
        self._packets: socket.socket

    def __enter__(self) -> Self:
        """Start counting.

        :raises PermissionError: without the right to open a packet socket.
        """
        # Without a protocol it receives nothing, so packets from before the filter are not counted.
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        code = b"".join(struct.pack("HBBI", *each) for each in _program(self._port))
        buffer = ctypes.create_string_buffer(code)
        # The process keeps the buffer until the kernel has copied it.
        program = struct.pack("HL", len(code) // 8, ctypes.addressof(buffer))
        self._packets.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        self._packets.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, _BUFFER)
        self._packets.settimeout(_TIMEOUT)
        self._packets.bind(("lo", _ALL_PACKETS))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._packets.close()

    def between(self, since: float, until: float) -> list[float]:
        """Return the times of the SYNs between two times."""
        return [at for at in self.times if since <= at < until]

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                _, sender = self._packets.recvfrom(64)
            except TimeoutError:
                continue
            # Loopback shows each packet twice: as it leaves, and as it arrives.
            if sender[2] == socket.PACKET_OUTGOING:
                self.times.append(time.monotonic())
        seen = self._packets.getsockopt(_PACKET_LEVEL, _STATISTICS, 8)
        self.missed = struct.unpack("II", seen)[1]
