"""TLS and SASL as programs for proton ask for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import SSLDomain, Url
from proton.handlers import MessagingHandler

from haclient.errors import AuthenticationFailed, TLSVerificationFailed
from haclient.reactor import Container
from haclient.utils import BlockingConnection
from tests.certificates import Authority
from tests.members import Member, Members

USERS = {"ann": "secret"}
TIMEOUT = 20.0


@pytest.fixture
def safe(members: Members, authority: Authority) -> Member:
    """A member that speaks TLS and certifies that it is localhost."""
    return members.start("safe", role="primary", certificate=authority.issue("localhost"))


@pytest.fixture
def locked(members: Members) -> Member:
    """A member that wants a name and a password."""
    return members.start("locked", role="primary", users=USERS, anonymous=False)


def named(member: Member) -> str:
    return member.url.replace("127.0.0.1", "localhost")


def trusting(authority: Authority) -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


class Visitor(MessagingHandler):
    """Connects, and leaves when it can; keeps the transport's error."""

    def __init__(self, *addresses: Any, **options: Any) -> None:
        super().__init__()
        self.addresses, self.options = addresses, options
        self.opened = False
        self.errors: list[str] = []

    def on_start(self, event: Any) -> None:
        event.container.connect(*self.addresses, **self.options)

    def on_connection_opened(self, event: Any) -> None:
        self.opened = True
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append(event.transport.condition.name)
        super().on_transport_error(event)


@pytest.mark.parametrize("reconnect", [None, False])
def test_the_domain_of_connect_says_whom_to_trust(safe: Member, authority: Authority, reconnect: Any) -> None:
    visitor = Visitor(named(safe), ssl_domain=trusting(authority), reconnect=reconnect)
    Container(visitor).run()
    assert visitor.opened


@pytest.mark.parametrize("reconnect", [None, False])
def test_the_domain_of_the_container_does_too(safe: Member, authority: Authority, reconnect: Any) -> None:
    visitor = Visitor(named(safe), reconnect=reconnect)
    container = Container(visitor)
    container.ssl.set_trusted_ca_db(str(authority.file))
    container.run()
    assert visitor.opened


@pytest.mark.parametrize("reconnect", [None, False])
def test_an_authority_that_is_not_trusted_ends_the_container(safe: Member, reconnect: Any) -> None:
    visitor = Visitor(named(safe), reconnect=reconnect)
    Container(visitor).run()
    assert not visitor.opened
    assert len(visitor.errors) == 1


def test_blocking_calls_report_a_certificate_that_is_not_trusted(safe: Member, authority: Authority) -> None:
    with pytest.raises(TLSVerificationFailed):
        BlockingConnection(named(safe), timeout=TIMEOUT)
    BlockingConnection(named(safe), timeout=TIMEOUT, ssl_domain=trusting(authority)).close()
    BlockingConnection(named(safe), timeout=TIMEOUT, tls_ca=str(authority.file)).close()


def test_connect_json_may_ask_for_tls(
    safe: Member, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = Url(named(safe))
    file = tmp_path / "connect.json"
    facts = {"scheme": "amqps", "host": url.host, "port": int(url.port), "tls": {"ca": str(authority.file)}}
    file.write_text(json.dumps(facts))
    monkeypatch.setenv("MESSAGING_CONNECT_FILE", str(file))
    visitor = Visitor()
    Container(visitor).run()
    assert visitor.opened


@pytest.mark.parametrize("reconnect", [None, False])
@pytest.mark.parametrize("where", ["url", "argument", "container"])
def test_a_user_may_be_named_in_three_places(locked: Member, where: str, reconnect: Any) -> None:
    address = locked.address
    visitor = Visitor(f"amqp://ann:secret@{address}" if where == "url" else address, reconnect=reconnect)
    if where == "argument":
        visitor.options |= {"user": "ann", "password": "secret"}
    container = Container(visitor)
    if where == "container":
        container.user, container.password = "ann", "secret"
    container.run()
    assert visitor.opened


@pytest.mark.parametrize("reconnect", [None, False])
def test_a_wrong_password_ends_the_container(locked: Member, reconnect: Any) -> None:
    visitor = Visitor(locked.address, user="ann", password="wrong", reconnect=reconnect)
    Container(visitor).run()
    assert visitor.errors == ["amqp:unauthorized-access"]
    assert not visitor.opened


def test_blocking_calls_report_a_wrong_password(locked: Member) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        BlockingConnection(locked.address, timeout=TIMEOUT, user="ann", password="wrong")
    assert isinstance(raised.value, proton.ConnectionException)
    assert "wrong" not in str(raised.value)


def test_a_listener_may_speak_tls(authority: Authority) -> None:
    certificate = authority.issue("localhost")
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    domain.set_credentials(str(certificate.chain), str(certificate.key), None)

    class Both(Visitor):
        def on_start(self, event: Any) -> None:
            self.acceptor = event.container.listen("localhost:0", ssl_domain=domain)
            port = self.acceptor.address[1]
            event.container.connect(
                f"amqps://localhost:{port}", ssl_domain=trusting(authority), reconnect=False
            )

        def on_connection_closed(self, event: Any) -> None:
            self.acceptor.close()

    visitor = Both()
    Container(visitor).run()
    assert visitor.opened
