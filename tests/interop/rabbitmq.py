"""RabbitMQ nodes for tests and benchmarks: Debian's ``rabbitmq-server`` with its AMQP 1.0 plugin.

    with RabbitMQ(nodes=2) as cluster:
        first, second = cluster.nodes
        first.control("stop_app")
        second.kill()

Debian 12 has no RabbitMQ 4. With ``root=`` the programs come from another Debian in a folder (made by
``scripts/setup_brokers.sh``), and run by ``chroot`` in their own mount namespace.

Rules
-----
* The system's own RabbitMQ is not touched. Every node has its own folder for data, log, cookie and
  configuration, and listens on a loopback address and free ports.
* The nodes find each other through their own Erlang port mapper (epmd).
* Every call returns when its effect is complete. All processes end with the context, by their ids, and
  also whenever their parent process ends.

The second node joins the first one at its first start, by the peer list in the configuration.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import proton

from haclient.testing.peers.listening import loopback_host
from tests import leash
from tests.dnsmasq import free_port

ADDRESS = "127.0.0.1"

# Debian keeps the real programs here. The wrappers on the PATH insist on the user rabbitmq.
_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
# Seconds. An Erlang machine needs some to start, many on a busy machine.
_PATIENCE = 90.0
_POLL = 0.1
# Runs a command in the folder $0. Its data folder $1 has the same path inside. The mounts end with it.
_IN_ROOT = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit
mkdir -p "$0$1" && mount --bind "$1" "$0$1" || exit
shift
exec chroot "$0" "$@"
"""
_CONFIGURATION = """\
cluster_formation.peer_discovery_backend = classic_config
disk_free_limit.absolute = 1MB
log.file.level = info
"""


def installed(root: Path | None = None) -> bool:
    """Return whether RabbitMQ is installed on this system, or in a folder with another one."""
    if root is not None:
        return (root / _PROGRAMS.relative_to("/") / "rabbitmq-server").exists()
    return (_PROGRAMS / "rabbitmq-server").exists() and shutil.which("epmd") is not None


def durable(link: proton.Link) -> None:
    """Ask for a durable queue (``configure=``); ``/queue/name`` makes a transient one by default."""
    terminus = link.target if link.is_sender else link.source
    terminus.durability = proton.Terminus.CONFIGURATION


class RabbitMQ:
    """A cluster of ``nodes`` nodes, in its own folder.

    :param folder: a folder to keep; by default a temporary one, removed by ``stop``.
    :param root: a folder with a Debian whose RabbitMQ to run; requires root.
    :param plugins: more plugins; ``configuration``: more lines of ``rabbitmq.conf``.
    """

    def __init__(
        self,
        nodes: int = 1,
        folder: Path | None = None,
        root: Path | None = None,
        *,
        plugins: tuple[str, ...] = (),
        configuration: str = "",
    ) -> None:
        assert installed(root), "RabbitMQ is not installed"
        self._keeps = folder is not None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="rabbitmq-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._enter = _enter(root, self._folder)
        # Since version 4 AMQP 1.0 is part of the broker.
        enabled = ("rabbitmq_amqp1_0", *plugins) if root is None else plugins
        self._plugins, self._configuration = f"[{','.join(enabled)}].\n", configuration
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text("COOKIEOFTHESETESTS")
        cookie.chmod(0o400)
        self._epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self.nodes = tuple(self._node(number) for number in range(1, nodes + 1))

    def _node(self, number: int) -> Node:
        return Node(
            self._folder / f"node{number}", f"node{number}@localhost", self._epmd_port, enter=self._enter
        )

    @property
    def url(self) -> str:
        """Return the cluster URL for clients; ``/queue/name`` is created on demand."""
        return "amqp://guest:guest@" + ",".join(node.address for node in self.nodes)

    @property
    def version(self) -> str:
        """Return the version of the package."""
        return self.nodes[0].control("version").strip()

    def start(self) -> None:
        """Start all nodes, and wait until they serve."""
        self._epmd = leash.start(*self._enter, "epmd", "-address", ADDRESS, "-port", str(self._epmd_port))
        _wait_until_open(ADDRESS, self._epmd_port, self._epmd)
        for node in self.nodes:
            node.configure(self.nodes, plugins=self._plugins, more=self._configuration)
        if self._enter:  # version 4 waits for all nodes of the new cluster
            for node in self.nodes:
                node.launch()
        for node in self.nodes:
            if not node.running:
                node.launch()
            node.until_serving()

    def stop(self) -> None:
        """Stop every process, and remove the folder unless it was given."""
        for node in self.nodes:
            node.kill()
        if self._epmd is not None:
            leash.kill(self._epmd)
        if not self._keeps:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Node:
    """One node, which can be stopped and restarted with its data."""

    def __init__(self, folder: Path, name: str, epmd_port: int, *, enter: tuple[str, ...] = ()) -> None:
        folder.mkdir()
        self.name = name
        self._enter = enter
        # Its own address, so that no other process takes its port while it is down.
        self.host = loopback_host()
        self.port = free_port(self.host)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # The distribution listens on loopback only as well, and the system's port mapper is not started.
        erlang = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
        self._environment = {
            **os.environ,
            "LANG": "C.UTF-8",
            "HOME": str(folder.parent),
            "ERL_EPMD_ADDRESS": ADDRESS,
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": erlang,
            "RABBITMQ_CTL_ERL_ARGS": erlang,
        }

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return f"{self.host}:{self.port}"

    def configure(self, members: tuple[Node, ...], *, plugins: str, more: str = "") -> None:
        """Write the node's configuration: the plugins, and the nodes to join."""
        (self._folder / "plugins").write_text(plugins)
        peers = (
            f"cluster_formation.classic_config.nodes.{number} = {node.name}\n"
            for number, node in enumerate(members, 1)
        )
        (self._folder / "rabbitmq.conf").write_text(_CONFIGURATION + "".join(peers) + more)

    @property
    def folder(self) -> Path:
        """Return the node's folder."""
        return self._folder

    @property
    def session(self) -> int:
        """Return the session id of the node's processes; 0 without any."""
        return 0 if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Return whether the process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node, and wait until it serves."""
        self.launch()
        self.until_serving()

    def until_serving(self) -> None:
        """Wait until the launched node serves."""
        assert self._process is not None
        try:
            _wait_until_open(self.host, self.port, self._process)
        except RuntimeError as error:
            raise RuntimeError(f"{self.name}: {error}\n{self.tail()}") from error

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the node without waiting."""
        self.kill()  # reap a process that ended by itself
        with (self._folder / "console").open("ab") as console:
            server = str(_PROGRAMS / "rabbitmq-server")
            self._process = leash.start(*self._enter, server, env=self._environment, output=console)
        return self._process

    def tail(self) -> str:
        """Return the end of the console output."""
        return f"{self._folder}: ..." + (self._folder / "console").read_text(errors="replace")[-2000:]

    def control(self, *arguments: str, program: str = "rabbitmqctl") -> str:
        """Run ``rabbitmqctl``, or another program of the package, for this node.

        :returns: the output.
        """
        ended = subprocess.run(
            [*self._enter, str(_PROGRAMS / program), "--quiet", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert ended.returncode == 0, f"{program} {arguments}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def shut_down(self) -> None:
        """Stop the node gracefully with ``rabbitmqctl stop``."""
        self.control("stop")
        assert self._process is not None
        self._process.communicate(timeout=_PATIENCE)
        self._process = None

    def pause(self) -> None:
        """Send SIGSTOP to all of the node's processes."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to all of the node's processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Send SIGKILL if the node runs."""
        if self._process is not None:
            leash.kill(self._process)
            self._process = None


def _enter(root: Path | None, folder: Path) -> tuple[str, ...]:
    """Return the prefix of a command that runs inside ``root`` with access to a folder."""
    if root is None:
        return ()
    return ("unshare", "--mount", "sh", "-c", _IN_ROOT, str(root), str(folder.resolve()))


def _wait_until_open(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            socket.create_connection((host, port), 1.0).close()
        except OSError:
            time.sleep(_POLL)
        else:
            return
    raise RuntimeError(f"nobody listens at port {port}")
