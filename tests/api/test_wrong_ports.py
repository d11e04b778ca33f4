"""A port that does not match the URL: the error names the protocol there, and the correct URL."""

from __future__ import annotations

import asyncio
import re
import tracemalloc

import pytest

from haclient.cluster_url.errors import ClusterURLError
from haclient.errors import AuthenticationFailed, ConnectionGaveUp, DeadlineExceeded
from haclient.testing.peers.deaf import silence
from haclient.testing.peers.listening import Peer, bound
from tests.certificates import Authority
from tests.cli.command import run
from tests.peers import primary, url
from tests.peers.apis import API
from tests.peers.scripted import answering

ONCE = "max_attempts=1"
PASSWORD = "hunter2-hunter2"
SASL = b"AMQP\x03\x01\x00\x00"
# The whole answer of RabbitMQ 3 without its AMQP 1.0 plugin, and of qpidd without its module.
AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
AMQP_0_10 = b"AMQP\x01\x01\x00\x0a"

# The answer of a peer, the code of the error, and its text.
ANSWERS = {
    "rabbitmq": (AMQP_0_9_1, "amqp-0-9-1", "this port speaks AMQP 0-9-1, not AMQP 1.0 (RabbitMQ before 4.0"),
    "qpidd": (AMQP_0_10, "amqp-0-10", "this port speaks AMQP 0-10, not AMQP 1.0 (qpidd: load its module"),
    "another version": (b"AMQP\x00\x02\x00\x00", "not-amqp", "another version of AMQP: 0.2.0.0"),
    "no sasl": (b"AMQP\x00\x01\x00\x00", "no-sasl", "this port speaks AMQP 1.0 without SASL"),
    "tls header": (b"AMQP\x02\x01\x00\x00", "tls-port", "this port wants TLS first: write amqps://"),
    "http": (
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        "http-port",
        "this port speaks HTTP, not AMQP: it answered 'HTTP/1.1 400 Bad Request'",
    ),
    "http2": (b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", "http-port", "speaks HTTP"),
    "tls alert": (
        bytes.fromhex("15030300020246"),
        "tls-port",
        "this port speaks TLS: write amqps:// instead of amqp://",
    ),
    "ssh": (b"SSH-2.0-OpenSSH_9.6\r\n", "not-amqp", "this port speaks SSH, not AMQP"),
    "redis": (b"-ERR unknown command 'AMQP'\r\n", "not-amqp", "speaks the protocol of Redis, not AMQP"),
    "smtp": (b"220 mail.test ESMTP Postfix\r\n", "not-amqp", "this port speaks SMTP or FTP, not AMQP"),
    "mysql": (b"\x4a\x00\x00\x00\x0a8.0.33\x00", "not-amqp", "this port speaks the protocol of MySQL"),
    "openwire": (b"\x00\x00\x01\x0a\x01ActiveMQ\x00\x00\x00\x0c", "not-amqp", "this port speaks OpenWire"),
    "garbage": (b"\x00\xff\x00\xff\x00\xff\x00\xff", "not-amqp", "this port does not speak AMQP 1.0"),
    "newline": (b"\r\n", "not-amqp", "this port does not speak AMQP 1.0: it answered '\\r\\n'"),
    "half a header": (b"AMQP\x03", "no-primary", "the peer closed the socket before SASL was done"),
    "nothing": (
        b"",
        "no-answer",
        "a TLS port (write amqps://), a proxy without a member behind it, or a broker at its limit of conn",
    ),
}


async def failed(api: API, text: str) -> ConnectionGaveUp:
    with pytest.raises(ConnectionGaveUp) as caught:
        await api.connect(text)
    assert PASSWORD not in f"{caught.value} {caught.value!r} {caught.value.attempts}"
    return caught.value


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_error_names_what_the_port_speaks(api: API, name: str) -> None:
    answer, code, part = ANSWERS[name]
    async with answering(answer) as peer:
        error = await failed(api, f"amqp://joe:{PASSWORD}@{peer.address}?{ONCE}")
    assert part in str(error)
    assert error.code == code
    assert not error.connection_usable


async def test_a_peer_that_speaks_first_and_stays_is_named_at_once(api: API) -> None:
    async with answering(b"SSH-2.0-OpenSSH_9.6\r\n", "stall", first=True) as peer:
        error = await failed(api, url(peer, attempt_timeout=60, max_attempts=1))
    assert "this port speaks SSH, not AMQP: it answered 'SSH-2.0-OpenSSH_9.6'" in str(error)


async def test_half_a_header_and_then_nothing_ends_with_the_attempt(api: API) -> None:
    async with answering(b"AMQP\x03", "stall") as peer:
        error = await failed(api, url(peer, attempt_timeout=0.2, max_attempts=1))
    assert "timed-out" in str(error)
    assert "then silence" in str(error)


async def test_ten_megabytes_of_garbage_are_neither_kept_nor_shown(api: API) -> None:
    garbage = b"garbage " * 1_250_000
    async with answering(garbage, "stall") as peer:
        tracemalloc.start()
        try:
            error = await failed(api, url(peer, max_attempts=1))
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "this port does not speak AMQP 1.0: it answered 'garbage garbage" in str(error)
    assert len(str(error)) < 1000
    assert kept < len(garbage)


async def test_the_code_is_exact_also_at_the_deadline(api: API) -> None:
    """The last attempt is stopped there."""
    async with answering(AMQP_0_9_1) as peer:
        error = await failed(api, url(peer, startup_deadline=1, backoff_base=0.01, backoff_max=0.02))
    assert isinstance(error, DeadlineExceeded)
    assert error.code == "amqp-0-9-1"


async def test_the_code_is_exact_only_where_every_endpoint_agrees(api: API) -> None:
    async with answering(AMQP_0_9_1) as first, answering(AMQP_0_9_1) as second:
        error = await failed(api, url(first, second, max_attempts=2))
        assert error.code == "amqp-0-9-1"
        with bound() as nobody:
            other = Peer(*nobody.getsockname())
            error = await failed(api, url(first, other, max_attempts=2))
    assert error.code == "no-primary"
    assert "AMQP 0-9-1" in str(error)
    assert "connection refused" in str(error)


# -- TLS ------------------------------------------------------------------------------------------


async def test_amqp_to_a_real_tls_port(api: API, authority: Authority) -> None:
    context = authority.issue("127.0.0.1").server_context()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failed(api, f"amqp://127.0.0.1:{port}?{ONCE}")
    assert "amqps://" in str(error)
    assert error.code in {"tls-port", "no-answer"}


@pytest.mark.parametrize("answer", [AMQP_0_9_1, SASL, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_amqps_to_a_plain_port(api: API, answer: bytes) -> None:
    async with answering(answer) as peer:
        error = await failed(api, f"amqps://{peer.address}?{ONCE}")
    assert "the peer does not speak TLS here: write amqp:// instead of amqps://" in str(error)
    assert error.code == "plain-port"


async def test_amqps_to_a_plain_member(api: API) -> None:
    async with primary() as member:
        error = await failed(api, f"amqps://{member.address}?{ONCE}")
    assert "write amqp://" in str(error)


async def test_amqps_with_external_to_a_plain_port(api: API, authority: Authority) -> None:
    mine = authority.issue("client.test")
    options = f"sasl_mechanisms=EXTERNAL&tls_ca={authority.file}&tls_cert={mine.chain}&tls_key={mine.key}"
    async with answering(AMQP_0_9_1) as peer:
        error = await failed(api, f"amqps://{peer.address}?{ONCE}&{options}")
    assert "the peer does not speak TLS here: write amqp:// instead of amqps://" in str(error)
    assert error.code == "plain-port"


async def test_amqps_to_a_port_that_closes_without_a_word(api: API) -> None:
    async with answering(b"") as peer:
        error = await failed(api, f"amqps://{peer.address}?{ONCE}")
    assert "closed the socket during the TLS handshake: is it a plain port (write amqp://)" in str(error)
    assert "limit of connections (ActiveMQ: maximumConnections)?" in str(error)
    assert error.code == "no-answer"


async def test_amqps_to_a_broker_that_closes_after_the_handshake(api: API, authority: Authority) -> None:
    """The broker is at its limit of connections, or has no member behind it."""
    context = authority.issue("127.0.0.1").server_context()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failed(api, f"amqps://127.0.0.1:{port}?{ONCE}&tls_ca={authority.file}")
    assert "before it sent a byte: is there a member behind it, or is it a broker at its limit" in str(error)
    assert "write amqp" not in str(error), "the port is the right one"
    assert error.code == "no-answer"


async def test_amqps_with_external_to_a_broker_at_its_limit(api: API, authority: Authority) -> None:
    """ActiveMQ Classic closes the socket before the handshake."""
    mine = authority.issue("client.test")
    options = f"sasl_mechanisms=EXTERNAL&tls_ca={authority.file}&tls_cert={mine.chain}&tls_key={mine.key}"
    async with answering(b"") as peer:
        error = await failed(api, f"amqps://{peer.address}?{ONCE}&{options}")
    assert "or a broker at its limit of connections (ActiveMQ: maximumConnections)?" in str(error)
    assert error.code == "no-answer"


# -- SASL -----------------------------------------------------------------------------------------


def mechanisms(*names: bytes) -> bytes:
    """Return the SASL header, and a frame that offers these (AMQP 1.0 part 5, section 5.3.3.1)."""
    symbols = b"".join(bytes((len(name),)) + name for name in names)
    array = bytes((len(symbols) + 2, len(names), 0xA3)) + symbols
    body = b"\x00\x53\x40\xc0" + bytes((len(array) + 2, 1, 0xE0)) + array
    return SASL + (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


OFFERS = [
    ((b"PLAIN", b"AMQPLAIN"), "", "", "the peer offers PLAIN AMQPLAIN, and this client may use ANONYMOUS;"),
    ((b"PLAIN",), "", "", "write a user and a password, as in amqp://user:password@host"),
    ((b"ANONYMOUS",), "joe", "", "leave out the user and the password"),
    ((b"GSSAPI",), "joe", "", "the peer offers GSSAPI, and this client may use SCRAM-SHA-512 "),
    ((b"GSSAPI", b"SCRAM-SHA-256"), "joe", "SCRAM-SHA256,PLAIN",
     "this client may use PLAIN; did you mean SCRAM-SHA-256 instead of SCRAM-SHA256 (opt"),
    ((b"GSSAPI",), "joe", "PLAIN", "and this client may use PLAIN; let the peer offer one of these, or"),
    ((), "joe", "PLAIN", "no SASL mechanism in common with the peer; this client may use PLAIN"),
]  # fmt: skip


@pytest.mark.parametrize(("offered", "user", "wanted", "part"), OFFERS)
async def test_no_common_mechanism_lists_what_both_have(
    api: API, offered: tuple[bytes, ...], user: str, wanted: str, part: str
) -> None:
    who = f"{user}:{PASSWORD}@" if user else ""
    option = f"&sasl_mechanisms={wanted}" if wanted else ""
    async with answering(mechanisms(*offered), "stall") as peer:
        error = await failed(api, f"amqp://{who}{peer.address}?{ONCE}{option}")
    assert isinstance(error, AuthenticationFailed)
    assert str(error).startswith(f"authentication failed at amqp://{peer.address}: no SASL mechanism in comm")
    assert part in str(error)
    assert error.code == "no-common-mechanism"
    assert error.mechanism is None
    assert not error.safe_to_retry


async def test_names_that_are_no_mechanisms_are_not_shown(api: API) -> None:
    async with answering(mechanisms(b"GSSAPI", b"look at \x1b[2J me"), "stall") as peer:
        error = await failed(api, url(peer, max_attempts=1))
    assert "the peer offers GSSAPI, and" in str(error)


# -- lists of URLs ---------------------------------------------------------------------------------


async def test_whole_urls_with_commas_between_are_a_list(api: API) -> None:
    with bound() as nobody:
        other = Peer(*nobody.getsockname())
        async with primary() as member:
            connection = await api.connect(f"amqp://{other.address},amqp://{member.address}/?window=5")
            assert str(connection.endpoint) == f"amqp://{member.address}"
            await connection.close()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("amqp://a?window=5,amqp://b", "options hold for the whole cluster: write amqp://host:port,amqp://h"),
        ("amqp://a;amqp://b", "between two members stands a comma: write amqp://host:port,amqp://host"),
    ],
)
async def test_a_list_that_is_written_otherwise_is_explained(api: API, text: str, part: str) -> None:
    with pytest.raises(ClusterURLError, match=re.escape(part)) as caught:
        await api.connect(text)
    assert (caught.value.code, caught.value.safe_to_retry) == ("bad-url", False)


async def test_a_fragment_of_a_url_is_explained(api: API) -> None:
    with pytest.raises(
        ClusterURLError, match="a cluster URL starts with amqp:// or amqps://: write amqp://a"
    ):
        await api.connect("a")


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rabbitmq", "http", "tls alert", "nothing"])
async def test_the_command_says_it_too_with_4_and_a_hint(name: str) -> None:
    answer, code, part = ANSWERS[name]
    async with answering(answer) as peer:
        text = f"amqp://joe:{PASSWORD}@{peer.address}"
        done = await asyncio.to_thread(run, "send", text, "q", "-m", "x", "-o", ONCE)
    assert done.returncode == 4
    assert part in done.stderr
    assert re.search(rf"^More: haclient help {code}$", done.stderr, re.MULTILINE)
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.slow
async def test_the_command_says_that_a_port_is_plain() -> None:
    async with answering(AMQP_0_9_1) as peer:
        done = await asyncio.to_thread(run, "send", f"amqps://{peer.address}", "q", "-m", "x", "-o", ONCE)
    assert done.returncode == 4
    assert "the peer does not speak TLS here: write amqp:// instead of amqps://" in done.stderr
    assert done.stderr.endswith("More: haclient help plain-port\n")


@pytest.mark.slow
async def test_the_command_says_what_mechanisms_there_are_with_5() -> None:
    async with answering(mechanisms(b"PLAIN"), "stall") as peer:
        wrong = await asyncio.to_thread(
            run, "send", f"amqp://joe:x@{peer.address}?sasl_mechanisms=PLAN,EXTERNAL", "q", "-m", "x"
        )
        done = await asyncio.to_thread(run, "send", f"amqp://{peer.address}", "q", "-m", "x")
    assert wrong.returncode == 5
    assert "this client may use none; did you mean PLAIN instead of PLAN" in wrong.stderr
    assert done.returncode == 5
    assert "the peer offers PLAIN, and this client may use ANONYMOUS" in done.stderr
    assert "More: haclient help no-common-mechanism\n" in done.stderr


async def test_a_port_that_is_silent_is_said_to_be(api: API) -> None:
    async with silence() as peer:
        error = await failed(api, url(peer, attempt_timeout=1, max_attempts=1))
    assert "then silence" in str(error)
