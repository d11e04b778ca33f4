"""The client's side of GSSAPI, with a real KDC and with servers that lie."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import proton
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haclient.engine.sasl import frames, kerberos
from haclient.engine.sasl.client import ClientSasl
from haclient.engine.sasl.mechanism import RefusedChallenge
from haclient.engine.sasl.mechanisms import prepared
from haclient.engine.settings import Settings
from tests import kdc
from tests.engine.sasl.test_client import protons_server
from tests.kdc import Acceptor, Realm

_MISSING = kdc.missing()
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "it is there")
_CYRUS = [*Path("/usr/lib").glob("*/sasl2/libgssapiv2.so"), *Path("/usr").glob("lib*/sasl2/libgssapiv2.so")]
HOST = "localhost"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm")) as realm:
        yield realm


@pytest.fixture(scope="module")
def keytab(shared: Realm) -> Path:
    return shared.service(f"amqp/{HOST}")


@pytest.fixture
def realm(shared: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """The realm, with a ticket of alice."""
    shared.use(monkeypatch)
    shared.log_in()
    return shared


class Socket:
    """Keeps the last frame that the client writes, and its message."""

    frame = b""
    message: bytes | None = None

    def get_extra_info(self, _: str) -> None:
        """Return that there is no TLS."""

    def write(self, data: bytes) -> None:
        self.frame = data
        incoming = frames.Incoming()
        incoming.held = frames.SASL_HEADER + data
        _, fields = frames.read(incoming.next_frame())
        self.message = fields[1] if len(fields) > 1 else fields[0]


class Exchange:
    """A client, and how a server's frames change it."""

    def __init__(self, host: str = HOST, user: str | None = None) -> None:
        begun = kerberos.Gssapi(host, user)
        self.sasl = ClientSasl(Settings(container_id="c", mechanisms=("GSSAPI",), kerberos=begun))
        self._socket = Socket()
        self.wrong: proton.Condition | None = None
        self.send(frames.SASL_HEADER + frames.mechanisms(("GSSAPI",)))

    def send(self, data: bytes) -> bytes:
        """Send the client bytes; return its answer."""
        self._socket.message = None
        if self.wrong is None:
            _, self.wrong = self.sasl.read(cast("asyncio.Transport", self._socket), data)
        return self._socket.message or b""

    @property
    def said(self) -> bytes:
        """Return the client's last frame."""
        return self._socket.frame

    def run(self, server: Acceptor) -> None:
        """Exchange all messages."""
        message = self._socket.message or b""
        while self.wrong is None and (challenge := server.answer(message)) is not None:
            message = self.send(frames.challenge(challenge))
        if self.wrong is None:
            self.send(frames.outcome(0))


def test_a_client_with_a_ticket_logs_in(realm: Realm, keytab: Path) -> None:
    exchange, server = Exchange(), Acceptor(keytab)
    exchange.run(server)
    assert exchange.wrong is None
    assert exchange.sasl.ended
    assert exchange.sasl.proved
    assert server.user == f"alice@{kdc.REALM}"


def test_the_user_of_the_url_is_the_one_of_the_ticket(realm: Realm, keytab: Path) -> None:
    for user in ("alice", f"alice@{kdc.REALM}"):
        exchange = Exchange(user=user)
        exchange.run(Acceptor(keytab))
        assert exchange.sasl.proved
    other = Exchange(user="bob")
    assert other.wrong is not None
    assert "no ticket for amqp@localhost: " in (other.wrong.description or "")


@pytest.mark.parametrize("layers", [1, 3, 7])
def test_a_server_may_offer_layers_that_the_client_does_not_use(
    layers: int, realm: Realm, keytab: Path
) -> None:
    exchange = Exchange()
    exchange.run(Acceptor(keytab, layers))
    assert exchange.sasl.ended


def test_a_server_that_requires_a_layer_is_refused(realm: Realm, keytab: Path) -> None:
    exchange = Exchange()
    exchange.run(Acceptor(keytab, 6))
    assert "requires a security layer" in str(exchange.wrong)
    assert not exchange.sasl.ended


def refused(host: str = HOST) -> RefusedChallenge:
    """Return why a client has no first message."""
    with pytest.raises(RefusedChallenge) as caught:
        kerberos.Gssapi(host, None).first()
    return caught.value


def test_without_a_ticket_the_reason_is_the_library_s(realm: Realm) -> None:
    realm.log_out()
    assert "No Kerberos credentials available" in str(refused())


def test_an_unknown_service_is_named(realm: Realm) -> None:
    assert str(refused("elsewhere")) == (
        f"no ticket for amqp@elsewhere: Server amqp/elsewhere@{kdc.REALM} not found in Kerberos database"
    )


def test_an_expired_ticket_is_named(realm: Realm) -> None:
    realm.log_in("alice", "-l", "1s")
    end = time.monotonic() + 20
    while not (failed := kerberos.Gssapi(HOST, None)._refused) and time.monotonic() < end:
        time.sleep(0.05)
    assert "expired" in str(failed).lower()


def test_a_key_in_a_keytab_gets_the_ticket_and_a_former_key_none(realm: Realm, keytab: Path) -> None:
    realm.write_client_keytab("carol")
    realm.log_out()
    exchange, server = Exchange(), Acceptor(keytab)
    exchange.run(server)
    assert server.user == f"carol@{kdc.REALM}"
    realm.log_out()
    realm.change_key("carol")
    assert str(refused()).startswith("no ticket for amqp@localhost: ")


def test_a_kdc_that_is_down_is_a_temporary_failure(realm: Realm) -> None:
    assert refused("elsewhere").outcome is None
    realm.stop()
    try:
        found = refused("elsewhere")
    finally:
        realm.start()
    assert "Cannot contact any KDC" in str(found)
    assert found.outcome == proton.SASL.TEMP


def test_a_server_with_the_key_of_another_service_proves_nothing(realm: Realm) -> None:
    """It cannot read the ticket, and says so."""
    exchange = Exchange()
    exchange.run(Acceptor(realm.service("amqp/other")))
    assert "did not prove who it is: " in str(exchange.wrong)
    assert not exchange.sasl.ended
    assert not exchange.sasl.proved


@pytest.mark.parametrize("challenges", [0, 1, 2])
def test_a_server_that_stops_in_the_middle_lets_nobody_in(
    challenges: int, realm: Realm, keytab: Path
) -> None:
    exchange, server = Exchange(), Acceptor(keytab)
    message = exchange._socket.message or b""
    for _ in range(challenges):
        message = exchange.send(frames.challenge(server.answer(message) or b""))
    exchange.send(frames.outcome(0))
    assert exchange.sasl.ended == (challenges == 2)


_ALTERED = st.tuples(st.integers(0, 10_000), st.integers(0, 7))
_STEPS = st.one_of(
    st.just("true"), st.just("end"), st.just("refuse"), _ALTERED, st.integers(0, 300), st.binary(max_size=80)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_STEPS, max_size=5))
def test_only_the_true_messages_let_a_client_in(
    realm: Realm, keytab: Path, steps: list[str | int | bytes | tuple[int, int]]
) -> None:
    """The server sends true messages, altered ones (one bit, or cut off), any bytes, or an outcome."""
    exchange, server = Exchange(), Acceptor(keytab)
    message = exchange._socket.message or b""
    lied = False
    for step in steps:
        if exchange.wrong is not None or exchange.sasl.ended:
            break
        if step in ("end", "refuse"):
            exchange.send(frames.outcome(0 if step == "end" else 1))
            continue
        true = b"" if lied else server.answer(message)
        if true is None:
            break
        lied |= isinstance(step, bytes | int)
        sent = true
        if isinstance(step, bytes):
            sent = step
        elif isinstance(step, int):
            sent = true[: step % max(len(true), 1)]
        elif isinstance(step, tuple) and true:
            at = step[0] % len(true)
            sent = true[:at] + bytes((true[at] ^ 1 << step[1],)) + true[at + 1 :]
        message = exchange.send(frames.challenge(sent))
    if exchange.sasl.ended:
        assert not lied
        assert exchange.sasl.proved
        assert len(steps) >= 3
    elif exchange.wrong is not None:
        assert exchange.wrong.name in ("amqp:unauthorized-access", "amqp:connection:framing-error")


async def test_a_cancelled_client_waits_for_no_kdc(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A silent KDC keeps the library for half a minute; the loop goes on."""
    silent = Realm(tmp_path / "silent")
    monkeypatch.setenv("KRB5_CONFIG", str(silent.config))
    asked = Settings(container_id="c", hostname=HOST, mechanisms=("GSSAPI",))
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", silent.port)), socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", silent.port))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await prepared(asked)
    assert time.monotonic() - started < 5


@pytest.mark.skipif(
    not _CYRUS, reason="Cyrus SASL's plugin is missing: apt-get install libsasl2-modules-gssapi-mit"
)
def test_cyrus_sasl_lets_the_client_in(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = socket.gethostname()
    monkeypatch.setenv("KRB5_KTNAME", str(realm.service(f"amqp/{host}")))
    with protons_server(tmp_path, "GSSAPI") as server:
        exchange = Exchange(host)
        offered = server(b"GSSAPI " + frames.SASL_HEADER)
        assert b"GSSAPI" in offered
        said = exchange.said
        while exchange.wrong is None and not exchange.sasl.ended:
            exchange.send(server(said))
            said = exchange.said
    assert exchange.wrong is None
    assert exchange.sasl.proved
