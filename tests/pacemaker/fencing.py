"""The power switch that a node's ``fence_lab`` controls: it cuts the power of another node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.pacemaker.node import Node

SOCKET = "fence.socket"
_DONE, _OFF, _WRONG = 0, 2, 1


class PowerSwitch:
    """Serves the socket in a folder that all nodes share, while the ``with`` block runs.

    A fenced node stays off until the test boots it.
    """

    def __init__(self, shared: Path, nodes: Sequence[Node]) -> None:
        self.fenced: list[str] = []
        self._nodes = {node.name: node for node in nodes}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(shared / SOCKET))
        self._thread = threading.Thread(target=self._serve, name="power switch")

    def __enter__(self) -> Self:
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer, peer.makefile("rw") as lines:
                action, _, name = lines.readline().strip().partition(" ")
                code, text = self._answer(action, name)
                lines.write(f"{code} {text}")

    def _answer(self, action: str, name: str) -> tuple[int, str]:
        if action in ("monitor", "on"):
            return _DONE, ""
        if action == "list":
            return _DONE, "".join(f"{name},\n" for name in self._nodes)
        node = self._nodes.get(name)
        if node is None:
            return _WRONG, f"there is no node {name!r}"
        if action == "status":
            return (_DONE if node.is_on else _OFF), ""
        node.power_off()
        self.fenced.append(name)
        return _DONE, ""
