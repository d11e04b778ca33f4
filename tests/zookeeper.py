"""A real ZooKeeper for tests: Debian's package as a child process, on a loopback address and a high port.

    with ZooKeeper(tmp_path) as zookeeper:
        ...open_arbiter(zookeeper.url("/arbiter"))...

It needs no privilege, keeps its files in the folder it is given, and is killed by its process id.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from tests.dnsmasq import free_port

# A JVM on a busy machine with two cores starts in about 3 seconds.
_PATIENCE = 60.0
_JARS = ("zookeeper.jar", "slf4j-simple.jar")
# The port is open before this line; earlier connections are neither answered nor closed.
_STARTED = "PrepRequestProcessor (sid:0) started"
# After it, and until all of the server runs, every connection is closed: a client tries again this often.
_POLL = 0.05

_CONFIGURATION = """\
tickTime=500
dataDir={folder}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
"""


def find_classpath() -> str:
    """Return the server's class path; Debian's jar names the rest in its manifest."""
    jars = [Path("/usr/share/java") / jar for jar in _JARS]
    missing = [jar for jar in jars if not jar.exists()]
    if missing or shutil.which("java") is None:
        raise AssertionError(f"these tests need {missing or 'java'}: install the package zookeeper")
    return os.pathsep.join(map(str, jars))


class ZooKeeper:
    """One server, which is an ensemble by itself.

    :param folder: an empty folder for its files.
    :param host: the address to listen on.
    :param port: the port; a free one if none is given.
    :param wrapper: a command that executes its arguments.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        wrapper: tuple[str, ...] = (),
    ) -> None:
        self.port = port or free_port()
        self._host = host
        self._wrapper = wrapper
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        self._started = threading.Event()
        self._reader: threading.Thread | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise AssertionError("ZooKeeper was not started")
        return self._process

    def url(self, path: str) -> str:
        """Return a URL for ``open_arbiter``."""
        return f"zookeeper:{self.address}{path}"

    def start(self) -> None:
        """Start, and wait until it has made a session and answered a request in it."""
        self._started.clear()
        configuration = self._folder / "zoo.cfg"
        facts = {"folder": self._folder / "data", "host": self._host, "port": self.port}
        configuration.write_text(_CONFIGURATION.format(**facts))
        self._process = subprocess.Popen(
            self._command(configuration), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,))
        self._reader.start()
        if not self._started.wait(_PATIENCE) or not self._answers():
            self.stop()
            raise AssertionError("ZooKeeper does not start:\n" + "".join(self._log[-20:]))

    def stop(self) -> None:
        """Stop it in any state; its data stay for the next start."""
        if self._process is None or self._reader is None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._process = None

    def pause(self) -> None:
        """Pause it: it takes connections and does not answer."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume it; it also answers the requests of the meantime."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self, configuration: Path) -> list[str]:
        # A small and quickly started JVM; its output goes where the test can read it.
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # The tests kill the process, never the machine: its writes survive without waiting for the disk.
        options.append("-Dzookeeper.forceSync=no")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*self._wrapper, "java", *options, "-cp", find_classpath(), main, str(configuration)]

    def _answers(self) -> bool:
        """Return whether it answers a client in time; the client retries as long as the process runs."""
        again = KazooRetry(max_tries=-1, delay=_POLL, backoff=1, max_jitter=0)
        client = KazooClient(self.address, connection_retry=again)
        end = time.monotonic() + _PATIENCE
        with closing(client):
            connected = client.start_async()
            while not connected.wait(_POLL) and self.process.poll() is None and time.monotonic() < end:
                pass
            if answered := connected.is_set():
                client.sync_async("/").get(timeout=_PATIENCE)
            client.stop()
        return bool(answered)

    def _read(self, log: IO[str]) -> None:
        for line in log:
            self._log.append(line)
            if _STARTED in line:
                self._started.set()
        # Wakes a caller that waits for a server that has ended.
        self._started.set()
