"""A real DNS server for tests: dnsmasq as a child process, on a loopback address and a high port.

    with Dnsmasq(tmp_path) as dns:
        dns.set_hosts({"broker.test": ["127.0.0.1", "::1"]})
        ...Resolver(nameserver=dns.nameserver)...

It answers for ``test`` and whatever it is given, and refuses every other name.  It needs no
privilege and reads no file of the system.  Every change waits until the server answers with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import dns.exception
import dns.message
import dns.query
import dns.rcode

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint

_PATIENCE = 10.0
# A query to a port that is not open yet is lost: dnsmasq is asked again after this many seconds.
_POLL = 0.05


def find_dnsmasq() -> str:
    """Return the path of the program; dnsmasq is often in a directory that is not on a user's PATH."""
    found = shutil.which("dnsmasq") or shutil.which("dnsmasq", path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        raise AssertionError("these tests need dnsmasq: install the package dnsmasq-base")
    return found


class Dnsmasq:
    """One dnsmasq.

    :param folder: an empty folder for its files.
    :param ttl: seconds, of every answer.
    :param extra: more arguments, such as ``--srv-host=_amqp._tcp.x.test,a.test,5672,10,5``.
    """

    def __init__(
        self, folder: Path, *, ttl: int = 0, extra: Iterable[str] = (), address: str = "127.0.0.1"
    ) -> None:
        self.address = address
        self.port = free_port(address)
        self.ttl = ttl
        self._extra = tuple(extra)
        self._hosts = folder / "dnsmasq.hosts"
        self._log = folder / "dnsmasq.log"
        self._versions = count(1)
        self._records: dict[str, tuple[str, ...]] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def nameserver(self) -> str:
        """The value for the option ``nameserver``."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("dnsmasq was not started")
        return self._process

    def start(self) -> None:
        """Start, and wait until it answers."""
        marker = self._write_hosts()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        self._wait_for(marker)

    def stop(self) -> None:
        """Stop it; the port then has no listener."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, extra: Iterable[str] | None = None) -> None:
        """Restart it at the same port, with other arguments if given."""
        self.stop()
        self._extra = self._extra if extra is None else tuple(extra)
        self.start()

    def pause(self) -> None:
        """Pause it: it takes queries and does not answer."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume it; it also answers the queries of the meantime."""
        self.process.send_signal(signal.SIGCONT)

    def set_hosts(self, records: Mapping[str, Iterable[str]]) -> None:
        """Replace all addresses of all names."""
        self._records = {name: tuple(addresses) for name, addresses in records.items()}
        if self._process is not None:
            marker = self._write_hosts()
            self.process.send_signal(signal.SIGHUP)
            self._wait_for(marker)

    def queries(self, name: str, rdtype: str) -> int:
        """Count the queries for a name."""
        return self._log.read_text().count(f"query[{rdtype}] {name} from ")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        arguments = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--pid-file=",
        ]
        arguments += [f"--port={self.port}", f"--listen-address={self.address}", "--bind-interfaces"]
        arguments += [
            "--local=/test/",
            f"--addn-hosts={self._hosts}",
            f"--local-ttl={self.ttl}",
            "--no-negcache",
        ]
        arguments += ["--log-queries", "--log-facility=-"]
        # As root it would change to a user that may not read the folder.
        arguments += ["--user=root"] if os.geteuid() == 0 else []
        return [find_dnsmasq(), *arguments, *self._extra]

    def _write_hosts(self) -> str:
        marker = f"version-{next(self._versions)}.test"
        lines = [f"127.0.0.1 {marker}"]
        lines += [f"{address} {name}" for name, addresses in self._records.items() for address in addresses]
        self._hosts.write_text("\n".join(lines) + "\n")
        return marker

    def _wait_for(self, marker: str) -> None:
        end = time.monotonic() + _PATIENCE
        while not self._has(marker):
            if self.process.poll() is not None:
                raise AssertionError(f"dnsmasq ended: {self._log.read_text()}")
            if time.monotonic() > end:
                raise AssertionError(f"dnsmasq does not answer: {self._log.read_text()}")

    def _has(self, name: str) -> bool:
        question = dns.message.make_query(name, "A")
        try:
            answer = dns.query.udp(question, self.address, port=self.port, timeout=_POLL)
        except (OSError, dns.exception.DNSException):
            return False
        return answer.rcode() == dns.rcode.NOERROR and bool(answer.answer)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that was free for UDP and TCP a moment ago.

    It is none that the kernel gives to outgoing connections, as ``free_addresses`` finds it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    while True:
        (found,) = free_addresses((Endpoint(address, 0),))
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            try:
                udp.bind((address, found.port))
            except OSError:
                continue
            return found.port
