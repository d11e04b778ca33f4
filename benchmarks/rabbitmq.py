"""RabbitMQ as a yardstick: Debian's ``rabbitmq-server`` with its AMQP 1.0 plugin, if it is installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 20.0
# Debian keeps the real programs here; those on the PATH insist on the user rabbitmq.
_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
_ADDRESS = "127.0.0.1"


def installed() -> bool:
    """Whether there is a RabbitMQ to measure."""
    return _server() is not None


def _server() -> str | None:
    path = _PROGRAMS / "rabbitmq-server"
    return str(path) if path.exists() else shutil.which("rabbitmq-server")


class RabbitMQ:
    """A node of its own, in a directory of its own, that lives as long as the context."""

    def __init__(self) -> None:
        server = _server()
        assert server is not None, "RabbitMQ is not installed"
        self._directory = Path(tempfile.mkdtemp(prefix="bench-rabbitmq-"))
        self.port = _free_port()
        self._dist_port = _free_port()
        enabled = self._directory / "enabled_plugins"
        enabled.write_text("[rabbitmq_amqp1_0].\n")
        environment = {
            **os.environ,
            "LANG": "C",
            "HOME": str(self._directory),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": _ADDRESS,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(self._directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
            "RABBITMQ_PID_FILE": str(self._directory / "pid"),
            "ERL_EPMD_ADDRESS": _ADDRESS,
        }
        self._log = (self._directory / "console").open("wb")
        self._process = subprocess.Popen(
            [server], env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Its AMQP URL; ``/queue/name`` is a durable queue."""
        return f"amqp://guest:guest@{_ADDRESS}:{self.port}"

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                text = (self._directory / "console").read_text(errors="replace")
                raise RuntimeError(f"RabbitMQ did not start: {text[-2000:]}")
            try:
                socket.create_connection((_ADDRESS, self.port), 1.0).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise RuntimeError("RabbitMQ did not listen in time")

    def stop(self) -> None:
        """End the node, and remove what it wrote."""
        # The shell that starts Erlang passes no signal on: the whole group is ours.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                continue
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
