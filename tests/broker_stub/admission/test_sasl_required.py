"""Members with users admit no client without authentication: hand-written bytes, to real processes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_stub.admission.auth import Auth
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import AdminClient
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.tls import TlsFiles
from tests.broker_stub.clients import member, offered_mechanisms, queue_status, running
from tests.broker_stub.commands import run
from tests.certificates import Authority
from tests.forked import ForkedMember

ADMIN = Credentials(user=DEFAULT_ADMIN, password="secret of the admin")
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
QUEUE = b"orders"
PATIENCE = 10.0


def _list(*items: bytes) -> bytes:
    inside = b"".join(items)
    return b"\xc0" + bytes((len(inside) + 1, len(items))) + inside


def _text(value: bytes) -> bytes:
    return b"\xa1" + bytes((len(value),)) + value


def _frame(code: int, *fields: bytes, kind: int = 0, payload: bytes = b"") -> bytes:
    body = b"\x00\x53" + bytes((code,)) + _list(*fields) + payload
    return (8 + len(body)).to_bytes(4) + bytes((2, kind, 0, 0)) + body


# Encodings by AMQP 1.0 part 2, section 2.7, and part 5, section 5.3.3.
NULL, ZERO, FALSE, TRUE = b"\x40", b"\x43", b"\x42", b"\x41"
OPEN = _frame(0x10, _text(b"x"))
BEGIN = _frame(0x11, NULL, ZERO, b"\x52\x64", b"\x52\x64")
ATTACH = _frame(
    0x12,
    _text(b"link"),
    ZERO,
    FALSE,
    NULL,
    NULL,
    b"\x00\x53\x28" + _list(),
    b"\x00\x53\x29" + _list(_text(QUEUE)),
    NULL,
    NULL,
    ZERO,
)
CLOSE = _frame(0x18)
TRANSFER = _frame(0x14, ZERO, ZERO, b"\xa0\x01t", ZERO, TRUE, payload=b"\x00\x53\x77" + _text(b"taken"))
OF_A_CLIENT = OPEN + BEGIN + ATTACH + TRANSFER
WRONG_PLAIN = _frame(0x41, b"\xa3\x05PLAIN", b"\xa0\x0c\x00admin\x00wrong", kind=1)
ANONYMOUS = _frame(0x41, b"\xa3\x09ANONYMOUS", kind=1)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("users")
    write_users(directory / "users", {ADMIN.user: ADMIN.password})
    return directory / "users"


@asynccontextmanager
async def serving(
    folder: Path, users: Path, *arguments: str, tls: bool
) -> AsyncIterator[tuple[Endpoint, ssl.SSLContext | None]]:
    context = None
    if tls:
        certificate = Authority(folder / "ca").issue("127.0.0.1")
        context = certificate.authority.client_context()
        arguments += ("--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key))
    required = ("--users", str(users), "--no-anonymous", "--role", "primary")
    async with member(folder, *required, *arguments) as address:
        yield address, context


async def answer(address: Endpoint, context: ssl.SSLContext | None, *parts: bytes) -> bytes:
    """Return the member's bytes until it ends the connection; the client only writes."""
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    answered = b""
    try:
        async with asyncio.timeout(PATIENCE):
            for part in parts:
                writer.write(part)
            while data := await reader.read(65536):
                answered += data
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.transport.abort()
    return answered


async def check_nothing_is_made(address: Endpoint, context: ssl.SSLContext | None) -> None:
    async with await AdminClient.connect(address, ADMIN, tls=context) as admin:
        rows = await admin.query(QUEUE_TYPE)
        assert [row["name"] for row in rows if not row["temporary"]] == []


transport = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@transport
@pytest.mark.parametrize(
    "parts",
    [
        (AMQP_HEADER + OF_A_CLIENT,),
        (AMQP_HEADER, OPEN, BEGIN, ATTACH, TRANSFER),
        (AMQP_HEADER + BEGIN + ATTACH + TRANSFER,),
    ],
    ids=["at once", "in pieces", "without open"],
)
async def test_a_client_that_skips_sasl_gets_no_answer_and_makes_no_queue(
    users: Path, tmp_path: Path, parts: tuple[bytes, ...], *, tls: bool
) -> None:
    async with serving(tmp_path, users, tls=tls) as (address, context):
        assert await answer(address, context, *parts) in {b"", SASL_HEADER}
        await check_nothing_is_made(address, context)


@pytest.mark.parametrize(
    "parts",
    [
        (SASL_HEADER, AMQP_HEADER + OF_A_CLIENT),
        (SASL_HEADER + WRONG_PLAIN, AMQP_HEADER + OF_A_CLIENT),
        (SASL_HEADER + ANONYMOUS, AMQP_HEADER + OF_A_CLIENT),
    ],
    ids=["begun", "wrong password", "anonymous"],
)
async def test_a_client_whose_sasl_did_not_succeed_makes_no_queue(
    users: Path, tmp_path: Path, parts: tuple[bytes, ...]
) -> None:
    """The member may send the SASL outcome, but no AMQP header of its own."""
    async with serving(tmp_path, users, tls=False) as (address, context):
        assert AMQP_HEADER not in await answer(address, context, *parts)
        await check_nothing_is_made(address, context)


@pytest.mark.slow
@transport
@pytest.mark.parametrize(
    "first", [b"", AMQP_HEADER[:5], SASL_HEADER, SASL_HEADER + WRONG_PLAIN[:-3]], ids=len
)
async def test_a_peer_that_stalls_before_sasl_is_done_is_dropped_in_time(
    users: Path, tmp_path: Path, first: bytes, *, tls: bool
) -> None:
    async with serving(tmp_path, users, "--handshake-timeout", "0.2", tls=tls) as (address, context):
        assert AMQP_HEADER not in await answer(address, context, first)


async def test_a_client_with_a_certificate_must_still_authenticate_with_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, mine = authority.issue("127.0.0.1"), authority.issue("carol@example.test")
    files = TlsFiles(certificate=str(certificate.chain), key=str(certificate.key), ca=str(authority.file))
    context = authority.client_context()
    context.load_cert_chain(mine.chain, mine.key)
    async with running(auth=Auth(external=True, anonymous=False), tls=files) as broker:
        assert await answer(broker.address, context, AMQP_HEADER + OF_A_CLIENT) in {b"", SASL_HEADER}
        assert queue_status(broker) == []


async def test_a_client_that_begins_without_an_open_is_cut_off() -> None:
    """This holds without users too: admission decides on the Open."""
    async with running() as broker:
        assert await answer(broker.address, None, AMQP_HEADER + BEGIN + ATTACH + TRANSFER) == b""
        assert queue_status(broker) == []


async def test_users_mean_that_nobody_comes_in_without_a_name(users: Path, tmp_path: Path) -> None:
    [address] = free_addresses((Endpoint("127.0.0.1", 0),))
    given = ("--listen", address.authority, "--users", str(users), "--role", "primary")
    process = ForkedMember(given, tmp_path / "member.log")
    await process.start()
    try:
        offered = await asyncio.to_thread(offered_mechanisms, address.authority)
        assert b"PLAIN" in offered
        assert b"ANONYMOUS" not in offered
        assert await answer(address, None, AMQP_HEADER + OF_A_CLIENT) in {b"", SASL_HEADER}
        await check_nothing_is_made(address, None)
    finally:
        await process.stop()


async def test_a_member_that_nobody_could_enter_is_refused() -> None:
    result = await run("serve", "--no-anonymous")
    assert (result.exit_code, "--no-anonymous needs --users" in result.stderr) == (2, True)
    with pytest.raises(ValueError, match="nobody could connect"):
        Auth(anonymous=False)


@transport
@pytest.mark.parametrize(
    "sent",
    [_frame(0x43, b"\xa0\x00", kind=1), ANONYMOUS + ANONYMOUS, _frame(0x40, b"\xa3\x05PLAIN", kind=1)],
    ids=["response first", "two choices", "a server's frame"],
)
async def test_sasl_frames_out_of_order_end_their_connection_and_no_member(
    tmp_path: Path, sent: bytes, *, tls: bool
) -> None:
    """The first of them crashed the process, inside the SASL library."""
    context = None
    arguments: tuple[str, ...] = ("--role", "primary")
    if tls:
        certificate = Authority(tmp_path / "ca").issue("127.0.0.1")
        context = certificate.authority.client_context()
        arguments += ("--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key))
    async with member(tmp_path, *arguments) as address:
        await answer(address, context, SASL_HEADER + sent)
        assert (await answer(address, context, SASL_HEADER + ANONYMOUS + AMQP_HEADER + OPEN + CLOSE)).count(
            AMQP_HEADER
        ) == 1
