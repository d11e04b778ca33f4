"""Permissions of users, at a primary and at a passive member."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import proton
import pytest
import trustme
from proton import Message

import haclient
from broker_stub.admission.auth import Auth
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.election.roles import Membership, Role
from broker_stub.management_client import AdminClient, MemberRefusedError, MemberUnreachableError
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.tls import TlsFiles
from tests.broker_stub.clients import Client, LinkRefusedError, member, running

ADMIN = Credentials(user=DEFAULT_ADMIN, password="secret of the admin")
ELSEWHERE = Endpoint("127.0.0.9", 5999)


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("users")
    write_users(directory / "users", {ADMIN.user: ADMIN.password, "alice": "wonder"})
    return directory / "users"


@pytest.fixture
async def primary(users: Path, tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with member(tmp_path, "--users", str(users), "--role", "primary") as address:
        yield address


@pytest.fixture
async def passive(users: Path, tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with member(tmp_path, "--users", str(users)) as address:
        yield address


async def test_a_passive_member_that_knows_the_primary_redirects() -> None:
    async with running(Membership(Role.PASSIVE, 3, ELSEWHERE)) as broker:
        client = await Client().connect(broker.address)
        reason = await client.end()
        assert reason.condition.name == "amqp:connection:redirect"
        assert reason.condition.info == {
            "network-host": "127.0.0.9",
            "port": 5999,
            "hostname": "127.0.0.9",
            "scheme": "amqp",
        }
        assert isinstance(reason.condition.info["port"], proton.ushort)
        properties = client.properties
        assert properties["amqp:connection-establishment-failed"] is True
        assert properties["haclient:role"] == "passive"
        assert not client.begun.is_set()


async def test_a_passive_member_that_knows_no_primary_refuses() -> None:
    async with running(Membership()) as broker:
        client = await Client().connect(broker.address)
        assert (await client.end()).condition.name == "amqp:connection:forced"


async def test_a_primary_says_what_it_is() -> None:
    members = (Endpoint("127.0.0.1", 5001), Endpoint("::1", 5002))
    async with running(Membership(Role.PRIMARY, 4), members=members, cluster="north") as broker:
        client = await Client().connect(broker.address)
        await client.begun.wait()
        properties = client.properties
        assert properties["product"] == "haclient-broker-stub"
        assert properties["version"] == haclient.__version__
        assert (properties["haclient:role"], properties["haclient:generation"]) == ("primary", 4)
        assert properties["haclient:cluster"] == "north"
        assert [(m["network-host"], m["port"]) for m in properties["failover-server-list"]] == [
            ("127.0.0.1", 5001),
            ("::1", 5002),
        ]
        await client.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"])
async def test_users_are_known_by_their_password(primary: Endpoint, mechanism: str) -> None:
    client = await Client().connect(primary, user="alice", password="wonder", mechanisms=(mechanism,))
    await client.begun.wait()
    await client.close()
    client = await Client().connect(primary, user="alice", password="x", mechanisms=(mechanism,))
    assert (await client.end()).condition.name == "amqp:unauthorized-access"


async def test_anonymous_clients_can_be_kept_out(users: Path, tmp_path: Path) -> None:
    async with member(tmp_path, "--users", str(users), "--no-anonymous") as address:
        client = await Client().connect(address)
        assert (await client.end()).condition.name == "amqp:unauthorized-access"


async def test_users_can_come_from_a_file_of_passwords(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("bob:builder\n\n")
    async with member(tmp_path, "--users", str(tmp_path / "users"), "--role", "primary") as address:
        client = await Client().connect(
            address, user="bob", password="builder", mechanisms=("SCRAM-SHA-256",)
        )
        await client.begun.wait()
        await client.close()


async def test_the_name_of_the_admin_without_its_password_is_nobody(passive: Endpoint) -> None:
    client = await Client().connect(passive, user=ADMIN.user, mechanisms=("ANONYMOUS",))
    assert (await client.end()).condition.name == "amqp:connection:forced"


@pytest.mark.parametrize(
    "credentials", [{}, {"user": "alice", "password": "wonder"}], ids=["anonymous", "user"]
)
async def test_management_is_for_the_admin_only(primary: Endpoint, credentials: dict[str, Any]) -> None:
    client = await Client().connect(primary, **credentials)
    with pytest.raises(LinkRefusedError, match="amqp:unauthorized-access"):
        await client.attach("sender", "s", "$management")
    with pytest.raises(LinkRefusedError, match="amqp:unauthorized-access"):
        await client.attach("receiver", "r", "$management")
    anywhere = await client.attach("sender", "a")
    request = Message(address="$management", properties={"operation": "DEMOTE"}, body={})
    [outcome] = await client.send(anywhere, request)
    assert outcome.condition == "amqp:unauthorized-access"
    await client.close()
    with pytest.raises(MemberRefusedError):
        await AdminClient.connect(primary, Credentials(user="alice", password="wonder"))
    async with await AdminClient.connect(primary, ADMIN) as admin:
        assert (await admin.status()).role == "primary"


async def test_the_admin_may_stay_on_a_passive_member_but_not_use_queues(passive: Endpoint) -> None:
    async with await AdminClient.connect(passive, ADMIN) as admin:
        assert (await admin.status()).role == "passive"
    client = await Client().connect(
        passive, user=ADMIN.user, password=ADMIN.password, mechanisms=("SCRAM-SHA-256",)
    )
    with pytest.raises(LinkRefusedError, match="amqp:illegal-state"):
        await client.attach("sender", "s", "q")
    await client.close()


async def test_the_admin_promotes_demotes_and_informs_where_the_primary_is(passive: Endpoint) -> None:
    async with await AdminClient.connect(passive, ADMIN) as admin:
        assert (await admin.set_primary(ELSEWHERE, generation=6)).primary == ELSEWHERE.authority
        with pytest.raises(MemberRefusedError, match="generation 5") as refused:
            await admin.set_primary(ELSEWHERE, generation=5)
        assert refused.value.status == 409
        status = await admin.promote()
        assert (status.role, status.generation) == ("primary", 7)
        with pytest.raises(MemberRefusedError, match="this member is primary"):
            await admin.promote()
        client = await Client().connect(passive)
        await client.attach("sender", "s", "q")
        assert (await admin.demote(ELSEWHERE)).role == "passive"
        assert (await client.end()).condition.name == "amqp:connection:redirect"
        assert (await admin.promote(at_least=20)).generation == 20


async def test_a_wrong_request_is_answered_with_what_is_wrong(primary: Endpoint) -> None:
    async with await AdminClient.connect(primary, ADMIN) as admin:
        for operation, arguments, status in (
            ("DANCE", {}, 501),
            ("PROMOTE", {"generation": "high"}, 400),
            ("SET-PRIMARY", {"primary": "nowhere"}, 400),
            ("READ", {"kind": "haclient.queue", "name": "none"}, 404),
        ):
            with pytest.raises(MemberRefusedError) as refused:
                await admin.call(operation, **arguments)
            assert refused.value.status == status


async def test_the_admin_sees_queues_and_their_counters(primary: Endpoint) -> None:
    async with await AdminClient.connect(primary, ADMIN) as admin:
        client = await Client().connect(primary)
        await client.send(await client.attach("sender", "s", "orders"), Message(body="x"))
        queue = await admin.call("READ", kind="haclient.queue", name="orders")
        assert (queue["depth"], queue["enqueued"]) == (1, 1)
        table = await admin.call("QUERY", kind="haclient.queue")
        assert "orders" in [row[table["attributeNames"].index("name")] for row in table["results"]]
        await client.close()


async def test_a_stopped_member_tells_its_clients(primary: Endpoint) -> None:
    client = await Client().connect(primary)
    await client.begun.wait()
    async with await AdminClient.connect(primary, ADMIN) as admin:
        await admin.call("STOP")
    assert (await client.end()).condition.name == "amqp:connection:forced"
    with pytest.raises(MemberUnreachableError):
        await AdminClient.connect(primary, ADMIN)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def server_files(authority: trustme.CA, directory: Path, *, clients: bool = False) -> TlsFiles:
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(directory / "cert.pem"))
    return TlsFiles(
        certificate=str(directory / "cert.pem"),
        key=str(directory / "key.pem"),
        ca=str(directory / "ca.pem") if clients else None,
    )


async def test_the_admin_comes_over_tls(users: Path, authority: trustme.CA, tmp_path: Path) -> None:
    files = server_files(authority, tmp_path)
    tls = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    async with member(tmp_path, "--users", str(users), *tls) as address:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        async with await AdminClient.connect(address, ADMIN, tls=context) as admin:
            assert (await admin.status()).role == "passive"
        with pytest.raises(MemberUnreachableError, match="certificate"):
            await AdminClient.connect(address, ADMIN, tls=ssl.create_default_context())


async def test_a_client_certificate_is_a_name(authority: trustme.CA, tmp_path: Path) -> None:
    files = server_files(authority, tmp_path, clients=True)
    async with running(auth=Auth(external=True, anonymous=False), tls=files) as broker:
        mine = authority.issue_cert("carol@example.org", common_name="carol")
        mine.private_key_pem.write_to_path(str(tmp_path / "my-key.pem"))
        mine.cert_chain_pems[0].write_to_path(str(tmp_path / "my-cert.pem"))
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.load_cert_chain(tmp_path / "my-cert.pem", tmp_path / "my-key.pem")
        external = {"mechanisms": ("EXTERNAL",), "shows_certificate": True}
        client = await Client().connect(broker.address, tls=context, tls_name="localhost", **external)
        await client.begun.wait()
        [connection] = broker._connections
        assert "carol" in connection.user
        await client.close()
