"""A machine of the cluster: a host of the lab with its own processes, name, ``/etc``, ``/var`` and
``/run``.

Theory of operation
-------------------
The node is process 1 of a PID namespace. When it is killed, the kernel kills every process of the node,
as in a power loss. Its cable is cut first, so that its kernel does not answer for them. Files written
to its disk stay in the upper directories of its overlays, and the node can be restarted.

Source: namespaces(7), pid_namespaces(7); Linux, Documentation/filesystems/overlayfs.rst.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.hosts.lab import Lab
from tests.hosts.switch import CLEAR, Conditions

# Folders that a node writes to: its agents are below /usr, the broker's environment is in /opt.
_OVERLAYS = ("etc", "var", "usr/sbin", "usr/lib/ocf", "opt")
_PATIENCE = 60.0
_CUT = Conditions(cut=True)

_FURNISH = """
set -eu
hostname "$1"
mount --make-rprivate /
for place in $4; do
    disk="$2/$(echo "$place" | tr / -)"
    mkdir -p "$disk/upper" "$disk/work"
    mount -t overlay overlay -o "lowerdir=/$place,upperdir=$disk/upper,workdir=$disk/work" "/$place"
done
mount -t tmpfs tmpfs /run
mkdir -p /run/lock
mount -t tmpfs tmpfs /dev/shm
mount --bind "$3" /srv
touch /run/furnished
while :; do sleep 3600 & wait; done
"""


class Node:
    """One machine.

    :param name: the name of its host in the lab.
    :param disk: the folder for its files; kept when the node is lost.
    :param shared: a folder that every node sees as ``/srv``.
    :param addresses: further addresses with a mask, for its device.
    """

    def __init__(
        self, lab: Lab, name: str, disk: Path, shared: Path, addresses: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self._lab = lab
        self._disk = disk
        self._shared = shared
        self._addresses = addresses
        self._unshare: subprocess.Popen[bytes] | None = None
        self._first = 0

    def power_on(self) -> None:
        """Start the node with its old disk, without daemons."""
        self._disk.mkdir(exist_ok=True)
        spaces = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
        arguments = (self.name, str(self._disk), str(self._shared), " ".join(_OVERLAYS))
        # It logs its child's death, which is the usual end of a node.
        with (self._disk / "unshare.log").open("ab") as log:
            self._unshare = subprocess.Popen(
                [*self._lab.wrapper(self.name), "unshare", *spaces, "sh", "-c", _FURNISH, "sh", *arguments],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        wait_for(lambda: bool(children.read_text().split()), "the node's first process")
        self._first = int(children.read_text().split()[0])
        wait_for(self.path("/run/furnished").exists, "the node's mounts")
        self.plug()
        device = self.run("ip", "-o", "-4", "address", "show", "scope", "global").split()[1]
        for address in self._addresses:
            self.run("ip", "address", "replace", address, "dev", device)

    def power_off(self) -> None:
        """Kill every process of the node at once."""
        if self._unshare is None:
            return
        self.unplug()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._unshare.wait()
        self._unshare = None

    @property
    def is_on(self) -> bool:
        """Return whether the node is running."""
        return self._unshare is not None

    # -- its cable ------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Cut the node's cable in both directions."""
        self._lab.change(self._cables(), _CUT)

    def plug(self) -> None:
        """Restore the node's cable."""
        self._lab.change(self._cables(), CLEAR)

    def _cables(self) -> list[tuple[str, str]]:
        others = [host for host in self._lab.hosts if host != self.name]
        return [pair for other in others for pair in self._lab.both(self.name, other)]

    # -- its processes -----------------------------------------------------------------------------

    def run(self, *command: str, check: bool = True, timeout: float = _PATIENCE) -> str:
        """Run a command on the node, and return its output.

        :raises AssertionError: if it fails, with its output.
        """
        done = subprocess.run(
            [*self._enter(), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
            check=False,
        )
        failed = f"{self.name}: {' '.join(command)}: exit code {done.returncode}: {done.stdout}"
        assert not check or done.returncode == 0, failed
        return done.stdout

    def shell(self, script: str) -> str:
        """Run lines of shell script on the node; each must succeed."""
        return self.run("sh", "-euc", script, timeout=3 * _PATIENCE)

    def start(self, *command: str, log: str) -> None:
        """Start a daemon that ends with the node, with its output in a file of the node."""
        self.run("sh", "-c", f'setsid "$@" </dev/null >>{log} 2>&1 &', "sh", *command)

    def path(self, path: str) -> Path:
        """Return the path at which this process reaches a file of the running node."""
        return Path(f"/proc/{self._first}/root{path}")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the running node."""
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def _enter(self) -> tuple[str, ...]:
        # crmsh writes to its user's home, which the nodes would otherwise share with the machine.
        spaces = ("-m", "-n", "-u", "-i", "-p", "--", "env", "HOME=/run")
        return ("nsenter", "-t", str(self._first), *spaces)


def wait_for(condition: Callable[[], bool], what: str, timeout: float = _PATIENCE) -> None:
    """Poll until the condition holds.

    :raises AssertionError: if it does not hold in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(0.05)
