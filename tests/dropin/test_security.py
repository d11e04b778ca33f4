"""TLS and SASL as configured by programs for proton."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

import proton
import proton.utils
import pytest
from proton import SSLDomain, Url
from proton import reactor as proton_reactor
from proton.handlers import MessagingHandler

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.reporting_transport import ReportingTransport
from haclient.errors import AuthenticationFailed, TLSVerificationFailed
from haclient.reactor import Container
from haclient.utils import BlockingConnection
from tests.broker_stub.admission.test_client_certificates import OUT_OF_ORDER, external
from tests.broker_stub.admission.test_sasl_required import (
    AMQP_HEADER,
    ANONYMOUS,
    CLOSE,
    OPEN,
    SASL_HEADER,
    answer,
)
from tests.certificates import Authority
from tests.members import Member, Members
from tests.peers.cyrus import write_user_database

USERS = {"ann": "secret"}
TIMEOUT = 20.0


@pytest.fixture
def safe(members: Members, authority: Authority) -> Member:
    """A member with TLS, whose certificate is for localhost."""
    return members.start("safe", role="primary", certificate=authority.issue("localhost"))


@pytest.fixture
def locked(members: Members) -> Member:
    """A member that requires a name and a password."""
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
        self.facts: dict[str, Any] = {}

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


class Reporter(Visitor):
    """Keeps what its transport says of the log-in."""

    def on_connection_opened(self, event: Any) -> None:
        transport = event.transport
        layer = transport.sasl()
        self.said = (transport.user, transport.authenticated, layer.user, layer.outcome, layer.mech)
        super().on_connection_opened(event)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_transport_says_of_the_log_in_what_protons_says(locked: Member, mechanism: str) -> None:
    said = []
    for kind in (proton_reactor.Container, Container):
        reporter = Reporter(
            locked.url, user="ann", password="secret", allowed_mechs=mechanism, reconnect=False
        )
        kind(reporter).run()
        said.append(reporter.said)
    assert said[0] == said[1]


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


class Facts(Visitor):
    """Asks for the facts of TLS, as proton has them."""

    def on_connection_opened(self, event: Any) -> None:
        tls = event.transport.ssl()
        self.facts = {
            "encrypted": event.transport.encrypted,
            "protocol": tls.protocol_name(),
            "cipher": tls.cipher_name(),
            "subject": tls.get_cert_subject(),
            "same subject": tls.remote_subject,
            "name": tls.get_cert_common_name(),
            "organization": tls.get_cert_organization(),
            "unit": tls.get_cert_organization_unit(),
            "sha1": tls.get_cert_fingerprint_sha1(),
            "sha256": tls.get_cert_fingerprint_sha256(),
            "sha512": tls.get_cert_fingerprint_sha512(),
            "md5": tls.get_cert_fingerprint_md5(),
            "too long": tls.get_cert_fingerprint(20, proton.SSL.SHA1),
            "host": tls.peer_hostname,
            "resumed": tls.resume_status() == tls.RESUME_REUSED,
        }
        super().on_connection_opened(event)


def test_the_facts_of_tls_are_those_of_proton(safe: Member, authority: Authority) -> None:
    found = []
    for container in (Container, proton_reactor.Container):
        visitor = Facts(named(safe), ssl_domain=trusting(authority), reconnect=False)
        container(visitor).run()
        found.append(visitor.facts)
    assert found[0] == found[1]
    assert found[0]["encrypted"]


@pytest.mark.parametrize("reconnect", [None, False])
def test_the_facts_of_a_connection_without_tls_are_none(members: Members, reconnect: Any) -> None:
    visitor = Facts(members.start("plain", role="primary").url, reconnect=reconnect)
    Container(visitor).run()
    assert {name: fact for name, fact in visitor.facts.items() if fact} == {}


@pytest.mark.parametrize(
    ("verify", "host", "opens"),
    [
        (SSLDomain.ANONYMOUS_PEER, "127.0.0.1", True),
        (SSLDomain.VERIFY_PEER, "127.0.0.1", False),
        (SSLDomain.VERIFY_PEER_NAME, "127.0.0.1", False),
    ],
)
@pytest.mark.parametrize("reconnect", [None, False])
def test_what_is_verified_without_a_trusted_authority(
    safe: Member, verify: int, host: str, *, opens: bool, reconnect: Any
) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_peer_authentication(verify)
    visitor = Visitor(safe.url, ssl_domain=domain, reconnect=reconnect)
    Container(visitor).run()
    assert (visitor.opened, visitor.errors) == (opens, [] if opens else ["amqp:connection:framing-error"])


@pytest.mark.parametrize("container", [Container, proton_reactor.Container])
@pytest.mark.parametrize("known", [True, False])
def test_the_authorities_of_the_system_are_trusted_besides_the_named_ones(
    safe: Member, authority: Authority, tmp_path: Path, container: Any, monkeypatch: Any, *, known: bool
) -> None:
    other = Authority(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file if known else other.file))
    visitor = Visitor(named(safe), ssl_domain=trusting(other), reconnect=False)
    container(visitor).run()
    assert visitor.opened == known


@pytest.mark.parametrize(
    ("verify", "opens"), [(SSLDomain.VERIFY_PEER, True), (SSLDomain.VERIFY_PEER_NAME, False)]
)
@pytest.mark.parametrize("container", [Container, proton_reactor.Container])
def test_a_name_is_verified_only_if_it_is_to_be(
    safe: Member, authority: Authority, verify: int, container: Any, *, opens: bool
) -> None:
    domain = trusting(authority)
    domain.set_peer_authentication(verify)
    visitor = Visitor(safe.url, ssl_domain=domain, sni="elsewhere.example", reconnect=False)
    container(visitor).run()
    assert visitor.opened == opens


def test_an_encrypted_key_needs_its_password(authority: Authority, tmp_path: Path) -> None:
    mine = authority.issue("carol@example.test", common_name="carol")
    key = tmp_path / "encrypted.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(mine.key), "-out", str(key), "-passout", "pass:open"]
    subprocess.run(command, check=True, capture_output=True)
    domain = trusting(authority)
    for wrong in (None, "", "shut"):
        with pytest.raises(proton.SSLException):
            domain.set_credentials(str(mine.chain), str(key), wrong)
    domain.set_credentials(str(mine.chain), str(key), "open")
    both = Both("localhost:0", {"ssl_domain": listening(authority, clients=True)}, ssl_domain=domain)
    Container(both).run()
    assert both.opened


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_a_file_that_is_none_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").write_text("")
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    with pytest.raises(proton.SSLException):
        domain.set_trusted_ca_db(str(tmp_path / name))
    with pytest.raises(proton.SSLException):
        domain.set_credentials(str(tmp_path / name), str(tmp_path / name), None)


def test_a_call_that_raises_changes_nothing(safe: Member, authority: Authority, tmp_path: Path) -> None:
    domain = trusting(authority)
    for call in (
        lambda: domain.set_credentials(str(tmp_path / "no.pem"), str(tmp_path / "no.pem"), None),
        lambda: domain.set_trusted_ca_db(str(tmp_path / "no.pem")),
        lambda: domain.set_peer_authentication(77),
    ):
        with pytest.raises(proton.SSLException):
            call()
    domain.set_trusted_ca_db(str(authority.file))
    for host, opens in (("localhost", True), ("127.0.0.1", False)):
        visitor = Visitor(safe.url.replace("127.0.0.1", host), ssl_domain=domain, reconnect=False)
        Container(visitor).run()
        assert visitor.opened == opens


@pytest.mark.parametrize("reconnect", [None, False])
@pytest.mark.parametrize("virtual_host", [".x", "a..b", 70 * "a"])
def test_a_virtual_host_that_is_no_name_leaves_the_name_of_the_address(
    safe: Member, authority: Authority, virtual_host: str, reconnect: Any
) -> None:
    given = {"ssl_domain": trusting(authority), "virtual_host": virtual_host, "reconnect": reconnect}
    visitor = Visitor(named(safe), **given)
    Container(visitor).run()
    assert visitor.opened


def test_a_name_for_tls_that_is_none_is_refused_at_once(authority: Authority) -> None:
    container = Container()
    with pytest.raises(ValueError, match=r"sni='a\.\.b'"):
        container.connect("amqps://localhost", ssl_domain=trusting(authority), sni="a..b")


@pytest.mark.parametrize("reconnect", [None, False])
@pytest.mark.parametrize("where", ["url", "arguments"])
def test_the_options_of_tls_work_with_and_without_failover(
    safe: Member, authority: Authority, where: str, reconnect: Any
) -> None:
    """The option for the name wins over the virtual host."""
    options = {"tls_ca": str(authority.file), "tls_server_name": "localhost"}
    url = safe.url if where == "arguments" else f"{safe.url}/?{urlencode(options)}"
    given = options if where == "arguments" else {}
    for trusted in (True, False):
        if not trusted and where == "url":
            continue
        named_ca = {} if trusted else {"tls_ca": str(authority.issue("localhost").chain)}
        visitor = Visitor(url, reconnect=reconnect, virtual_host="elsewhere.example", **{**given, **named_ca})
        Container(visitor).run()
        assert visitor.opened == trusted


def test_a_listener_uses_its_domain_as_it_is_at_each_connection(authority: Authority) -> None:
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    both = Both("localhost:0", {"ssl_domain": domain}, ssl_domain=trusting(authority))
    certificate = authority.issue("localhost")
    start = both.on_start

    def on_start(event: Any) -> None:
        start(event)
        domain.set_credentials(str(certificate.chain), str(certificate.key), None)

    both.on_start = on_start  # type: ignore[method-assign]
    Container(both).run()
    assert both.opened


def test_before_the_handshake_there_are_no_facts_of_tls() -> None:
    transport = ReportingTransport()
    context = ssl.create_default_context()
    transport.socket = cast("Any", SimpleNamespace(get_extra_info=lambda _name: _unstarted(context)))
    tls = transport.ssl()
    assert not transport.encrypted
    assert (tls.protocol_name(), tls.remote_subject, tls.get_cert_fingerprint_sha256()) == (None, None, None)


def _unstarted(context: ssl.SSLContext) -> ssl.SSLObject:
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")


class Both(Visitor):
    """Listens, and connects to itself; keeps the listener's view of its client."""

    def __init__(self, url: str, listen: dict[str, Any], *, scheme: str = "amqps", **options: Any) -> None:
        super().__init__(**options)
        self.url, self.listen, self.scheme = url, listen, scheme
        self.users: set[tuple[Any, ...]] = set()

    def on_start(self, event: Any) -> None:
        self.acceptor = event.container.listen(self.url, **self.listen)
        port = self.acceptor.address[1]
        event.container.connect(f"{self.scheme}://localhost:{port}", reconnect=False, **self.options)

    def on_connection_opening(self, event: Any) -> None:
        for transport in (event.transport, event.connection.transport):
            layer = transport.sasl()
            self.users.add(
                (transport.user, transport.authenticated, transport.encrypted, layer.user, layer.mech)
            )

    def on_connection_closed(self, event: Any) -> None:
        self.acceptor.close()

    def on_transport_error(self, event: Any) -> None:
        super().on_transport_error(event)
        self.acceptor.close()


def listening(authority: Authority, *, clients: bool = False) -> SSLDomain:
    certificate = authority.issue("localhost")
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    domain.set_credentials(str(certificate.chain), str(certificate.key), None)
    if clients:
        domain.set_trusted_ca_db(str(authority.file))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(authority.file))
    return domain


def showing(authority: Authority, domain: SSLDomain) -> SSLDomain:
    """Add the client's certificate to the domain."""
    mine = authority.issue("carol@example.test", common_name="carol")
    domain.set_credentials(str(mine.chain), str(mine.key), None)
    return domain


def test_a_listener_may_speak_tls(authority: Authority) -> None:
    both = Both("localhost:0", {"ssl_domain": listening(authority)}, ssl_domain=trusting(authority))
    Container(both).run()
    assert both.opened
    assert {found[2] for found in both.users} == {True}


def test_a_listener_may_have_the_domain_of_its_container(authority: Authority) -> None:
    certificate = authority.issue("localhost")
    both = Both("amqps://localhost:0", {}, ssl_domain=trusting(authority))
    container = Container(both)
    container.ssl.server.set_credentials(str(certificate.chain), str(certificate.key), None)
    container.run()
    assert both.opened


def test_a_listener_knows_its_client_by_the_certificate(authority: Authority) -> None:
    domain = showing(authority, trusting(authority))
    both = Both("localhost:0", {"ssl_domain": listening(authority, clients=True)}, ssl_domain=domain)
    Container(both).run()
    assert both.opened
    [(user, authenticated, encrypted, name, mechanism)] = both.users
    assert "CN=carol" in user.split(",")
    assert (authenticated, encrypted, name, mechanism) == (True, True, user, "EXTERNAL")


def test_a_listener_that_wants_certificates_refuses_a_client_without_one(authority: Authority) -> None:
    listener = {"ssl_domain": listening(authority, clients=True)}
    both = Both("localhost:0", listener, ssl_domain=trusting(authority))
    Container(both).run()
    assert not both.opened
    assert not both.users


def test_a_certificate_of_another_authority_is_refused_by_a_listener(
    authority: Authority, tmp_path: Path
) -> None:
    domain = showing(Authority(tmp_path / "other"), trusting(authority))
    both = Both("localhost:0", {"ssl_domain": listening(authority, clients=True)}, ssl_domain=domain)
    Container(both).run()
    assert not both.opened


def test_a_domain_for_clients_is_refused_by_a_listener() -> None:
    """The listener does not fall back to a port without TLS."""
    container = Container()
    with pytest.raises(TypeError, match=r"MODE_SERVER"):
        container.listen("localhost:0", ssl_domain=SSLDomain(SSLDomain.MODE_CLIENT))
    with pytest.raises(TypeError, match=r"MODE_CLIENT"):
        container.connect("amqps://localhost:0", ssl_domain=SSLDomain(SSLDomain.MODE_SERVER))
    container.run()


_MADE_EARLIER = """
import proton
domains = [proton.SSLDomain(mode) for mode in (proton.SSLDomain.MODE_CLIENT, proton.SSLDomain.MODE_SERVER)]
from haclient.reactor import Container
container = Container()
for domain, use in zip(domains, (container.connect, container.listen)):
    try:
        use("localhost:0", ssl_domain=domain)
    except TypeError as error:
        print(error)
"""


def test_a_domain_that_was_made_before_the_import_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", _MADE_EARLIER], capture_output=True, text=True, check=True)
    assert done.stdout.count("import haclient.reactor before you make an SSLDomain") == 2


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_listener_may_take_clients_without_tls(authority: Authority, scheme: str) -> None:
    domain = listening(authority)
    domain.allow_unsecured_client()
    both = Both("localhost:0", {"ssl_domain": domain}, scheme=scheme, ssl_domain=trusting(authority))
    Container(both).run()
    assert both.opened
    assert {found[2] for found in both.users} == {scheme == "amqps"}


def test_a_domain_for_clients_listens_to_nobody() -> None:
    with pytest.raises(proton.SSLException, match="for clients"):
        SSLDomain(SSLDomain.MODE_CLIENT).allow_unsecured_client()


_LISTENER = """
import sys
from proton.handlers import MessagingHandler
from haclient.reactor import Container, SSLDomain

class Listening(MessagingHandler):
    def on_start(self, event):
        domain = None
        if sys.argv[1:]:
            domain = SSLDomain(SSLDomain.MODE_SERVER)
            domain.set_credentials(sys.argv[1], sys.argv[2], None)
        if sys.argv[3:]:
            domain.set_trusted_ca_db(sys.argv[3])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER, sys.argv[3])
        print(event.container.listen("127.0.0.1:0", ssl_domain=domain).address[1], flush=True)

Container(Listening()).run()
"""


@pytest.mark.parametrize("given", [0, 2, 3], ids=["clear text", "any client", "clients with certificates"])
async def test_no_bytes_of_a_stranger_end_a_process_that_listens(authority: Authority, given: int) -> None:
    """They crashed it, without TLS and within it, so the listener is a separate process."""
    certificate = authority.issue("127.0.0.1")
    files = [str(certificate.chain), str(certificate.key), str(authority.file)][:given]
    mine = authority.issue("carol@example.test", common_name="carol")
    carol = authority.client_context()
    carol.load_cert_chain(mine.chain, mine.key)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LISTENER, *files, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = Endpoint("127.0.0.1", int(await process.stdout.readline()))
        for sent in OUT_OF_ORDER.values():
            for context in (None, authority.client_context(), carol) if given else (None,):
                await answer(address, context, sent)
        assert process.returncode is None
        chosen = external() if str(authority.file) in files else ANONYMOUS
        sent = SASL_HEADER + chosen + AMQP_HEADER + OPEN + CLOSE
        assert AMQP_HEADER in await answer(address, carol if given else None, sent)
    finally:
        process.kill()
        await process.wait()


_WITH_USERS = """
import sys
from proton.handlers import MessagingHandler
if sys.argv[1] == "proton":
    from proton import SSLDomain
    from proton.reactor import Container
else:
    from haclient.reactor import Container, SSLDomain

class Listening(MessagingHandler):
    def on_start(self, event):
        domain = None
        if sys.argv[3:]:
            domain = SSLDomain(SSLDomain.MODE_SERVER)
            domain.set_credentials(sys.argv[3], sys.argv[4], None)
        event.container.listen("127.0.0.1:" + sys.argv[2], ssl_domain=domain)
        print("ready", flush=True)

    def on_connection_opening(self, event):
        print(event.transport.user, event.transport.sasl().mech, flush=True)

Container(Listening()).run()
"""
_VISITS = [
    ("PLAIN", "wonder"),
    ("PLAIN", "wrong"),
    ("SCRAM-SHA-256", "wonder"),
    ("SCRAM-SHA-256", "wrong"),
    ("ANONYMOUS", None),
]


def visits(container: str, folder: Path, files: list[str], domain: SSLDomain) -> list[str]:
    """Log in to a listener whose users are Cyrus SASL's, by proton; return who comes in."""
    [address] = free_addresses((Endpoint("127.0.0.1", 0),))
    command = [sys.executable, "-c", _WITH_USERS, container, str(address.port), *files]
    environment = {**os.environ, "PN_SASL_CONFIG_PATH": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for mechanism, password in _VISITS:
            given = {"allowed_mechs": mechanism, "allow_insecure_mechs": True, "ssl_domain": domain}
            given |= {"user": "alice@cluster", "password": password} if password else {}
            with contextlib.suppress(proton.ConnectionException):
                url = f"{'amqps' if files else 'amqp'}://localhost:{address.port}"
                proton.utils.BlockingConnection(url, timeout=TIMEOUT, **given).close()
        process.terminate()
        return process.stdout.read().splitlines()


@pytest.mark.parametrize("tls", [False, True])
def test_the_users_of_the_host_log_in_to_a_listener_as_with_proton(
    authority: Authority, tmp_path: Path, *, tls: bool
) -> None:
    write_user_database(tmp_path, {"alice": "wonder"}, ("SCRAM-SHA-256", "PLAIN"))
    (tmp_path / "haclient.conf").rename(tmp_path / "proton-server.conf")
    certificate = authority.issue("localhost")
    files = [str(certificate.chain), str(certificate.key)] if tls else []
    found = [visits(each, tmp_path, files, trusting(authority)) for each in ("haclient", "proton")]
    assert found[0] == found[1]
    assert "alice@cluster SCRAM-SHA-256" in found[0]
    assert ("alice@cluster PLAIN" in found[0]) == tls
