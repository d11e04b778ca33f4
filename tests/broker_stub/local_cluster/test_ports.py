"""Ports for a cluster: the AMQP ports if they are free; never the same ports for two clusters."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.local_cluster.ports import claimed_ports, free_ports

FREE = free_ports(2)


@pytest.fixture
def first() -> int:
    """Return a free port whose successor is free, too."""
    while True:
        port = free_addresses(FREE)[0].port
        with contextlib.suppress(OSError), listening("127.0.0.1", port), listening("127.0.0.1", port + 1):
            return port


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()
        yield server


def ports(first: int) -> list[int]:
    with claimed_ports(2, first) as claimed:
        return [address.port for address in claimed.addresses]


def test_free_ports_are_given_one_after_the_other(first: int) -> None:
    with claimed_ports(2, first) as claimed:
        assert [str(address) for address in claimed.addresses] == [
            f"amqp://127.0.0.1:{first}",
            f"amqp://127.0.0.1:{first + 1}",
        ]
        assert claimed.taken_by == ""


def test_a_second_cluster_gets_others_although_nobody_listens_yet(first: int) -> None:
    with claimed_ports(2, first), claimed_ports(2, first) as second:
        assert second.addresses == FREE
        assert f"port {first} is in use" in second.taken_by
    assert ports(first) == [first, first + 1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_port_that_somebody_has_sends_all_members_elsewhere(first: int, which: int, host: str) -> None:
    """``localhost`` may be ``::1`` as well, and a wildcard is every address."""
    with listening(host, first + which), claimed_ports(2, first) as claimed:
        assert claimed.addresses == FREE
        assert f"port {first + which} is in use" in claimed.taken_by
    assert ports(first) == [first, first + 1]


def test_what_the_kernel_remembers_of_former_connections_is_no_reason(first: int) -> None:
    with listening("127.0.0.1", first) as server, socket.create_connection(("127.0.0.1", first)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the pair of ports for a minute
        assert client.recv(1) == b""
    assert ports(first) == [first, first + 1]


def test_a_claim_ends_with_its_process_however_that_ends(first: int) -> None:
    program = (
        "import sys, time; from broker_stub.local_cluster.ports import claimed_ports\n"
        f"with claimed_ports(2, {first}): print('claimed', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "claimed\n"
        assert ports(first) == [0, 0]
        holder.kill()
        holder.wait()
        assert ports(first) == [first, first + 1]


def test_ports_that_this_user_may_not_have_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("broker_stub.local_cluster.ports._check", refuse)
    with claimed_ports(2, 80) as claimed:
        assert claimed.addresses == FREE
        assert "Permission denied" in claimed.taken_by
