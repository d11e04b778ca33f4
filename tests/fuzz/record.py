"""Records the seeds of the link targets from valid traffic: ``python -m tests.fuzz.record``.

A client and a member, or a backup and its primary, communicate over TCP through a recorder. Each side's
bytes become a script.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import dns.message
import dns.rcode
import dns.rrset

from broker_stub.admission.auth import Auth
from broker_stub.admission.user_file import UserFile, write_users
from broker_stub.broker import Broker, BrokerOptions
from broker_stub.election.roles import Role
from broker_stub.queueing.queue import Queue
from haclient.engine.sasl import frames
from tests.fuzz import administration, members, pair, script, talks
from tests.fuzz.script import Kind, Step
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import (
    client,
    client_tokens,
    dns_answers,
    management,
    server_tokens,
    server_users,
    site_link,
)
from tests.fuzz.tls_wire import Mode
from tests.fuzz.wire import fixed_names

_CHUNK = 65536
_FRAME_HEADER = 8
# The clients' talks within TLS, including the choice of a certificate by name.
_SECURED = "send", "receive", "exchange", "large"
_EXTERNAL = b"\x00\x53\x41\xc0\x0d\x02\xa3\x08EXTERNAL\xa0\x00"
# A consumer's annotations: the map {x-a: "b"}, with the sizes that members write.
_ANNOTATIONS = bytes.fromhex("d10000000c00000002a303782d61a10162")
# SCRAM messages that contain a server's nonce, or a proof.
_PROVES = re.compile(rb"r=[^,]+,s=|,p=|v=")


@dataclass(slots=True)
class Recorder:
    """Forwards connections to a port, and records the bytes.

    :ivar sent: for each connection, the bytes of the client and of the server.
    """

    port: int
    sent: list[tuple[bytearray, bytearray]] = field(default_factory=list)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        client, server = bytearray(), bytearray()
        self.sent.append((client, server))
        await asyncio.gather(_copy(reader, there_writer, client), _copy(there_reader, writer, server))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    try:
        while data := await reader.read(_CHUNK):
            kept += data
            writer.write(data)
        writer.close()
    except ConnectionError:
        writer.close()


@asynccontextmanager
async def recording(port: int) -> AsyncIterator[tuple[Recorder, str]]:
    """Start a recorder in front of a port; yield it and its URL."""
    recorder = Recorder(port)
    server = await asyncio.start_server(recorder.forward, "127.0.0.1", 0)
    async with server:
        yield recorder, f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def recording_of(options: BrokerOptions) -> AsyncIterator[tuple[Recorder, str]]:
    """Start a recorder in front of a member with these options."""
    async with Broker(options) as broker:
        if options.auto_create:
            members.furnish(broker)
        async with recording(broker.address.port) as found:
            yield found


def keep(target: str, name: str, data: bytes) -> None:
    """Write a seed."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


async def _links() -> None:
    """Record client bytes for each talk, and a member's bytes to the program that the target runs."""
    for name, talk in talks.OF_CLIENTS.items():
        async with recording_of(members.OPTIONS) as (recorder, url):
            await talk(url)
        keep("server", name, script.encode(script.of_wire(bytes(recorder.sent[0][0]))))
    for name, steps in talks.WRITTEN.items():
        keep("server", name, script.encode(steps()))
    for name, options in talks.MEMBERS.items():
        with fixed_names():
            async with recording_of(options) as (recorder, url):
                await client.program(f"{url}/?heartbeat=0&startup_deadline=2&deadline=2")
        keep("client", name, script.encode(script.of_wire(bytes(recorder.sent[0][1]))))


def _secured() -> None:
    """Store client traffic for a member with TLS, and clear-text traffic for the drop-in's listener."""
    for name in _SECURED:
        anonymous = list(script.parse((CORPUS / "server" / name).read_bytes()))
        named = [Step(Kind.SASL, _EXTERNAL) if step.kind is Kind.SASL else step for step in anonymous]
        for target, kept, mode, steps in (
            ("server_tls", name, Mode(0), anonymous),
            ("server_certificates", name, Mode.CERTIFICATE, named),
            ("listener", name, Mode.CERTIFICATE, named),
            ("listener", f"{name}-in-clear", Mode.CLEAR, anonymous),
        ):
            keep(target, kept, script.encode([Step(Kind.PROOF, bytes((mode,))), *steps]))


async def _users() -> None:
    """Record traffic with passwords. Proofs become steps, since each new nonce requires new proofs."""
    with tempfile.TemporaryDirectory() as folder:
        write_users(Path(folder) / "users", server_users.PASSWORDS)
        options = replace(members.OPTIONS, auth=Auth(users=UserFile(Path(folder) / "users")))
        for name, talk in talks.OF_USERS.items():
            with fixed_names():
                async with recording_of(options) as (recorder, url):
                    await talk(url)
            client, server = (_with_proofs(bytes(data)) for data in recorder.sent[0])
            keep("server_users", name, script.encode(client))
            if name in ("send", "wrong-password"):
                keep("client_users", name, script.encode(server))


async def _tokens() -> None:
    """Record traffic with a token, by each mechanism."""
    with tempfile.TemporaryDirectory() as folder:
        auth = Auth(tokens=server_tokens.Tokens(Path(folder)), claims=True)
        for name, talk in talks.OF_TOKENS.items():
            with fixed_names():
                async with recording_of(replace(members.OPTIONS, auth=auth)) as (recorder, url):
                    await talk(url)
            keep("server_tokens", name, script.encode(script.of_wire(bytes(recorder.sent[0][0]))))
        for mechanism in ("OAUTHBEARER", "PLAIN", "MSSBCBS"):
            with fixed_names():
                async with recording_of(replace(members.OPTIONS, auth=auth)) as (recorder, url):
                    options = f"heartbeat=0&sasl_mechanisms={mechanism}"
                    header, _, *steps = await _renewal(recorder, f"{url}?{options}")
            offer = Step(Kind.SASL, frames.mechanisms((mechanism,))[_FRAME_HEADER:])
            keep("client_tokens", mechanism.lower(), script.encode([header, offer, *steps]))


async def _renewal(recorder: Recorder, url: str) -> list[Step]:
    """Return a member's bytes to a client that renews its token; the time for it passes between them."""
    at = list[int]()
    await client_tokens.program(url, lambda: at.append(len(recorder.sent[0][1])))
    data = bytes(recorder.sent[0][1])
    seconds = Step(Kind.TIME, bytes([int(client_tokens.LIFE * 100) - 1]))
    return [*script.of_wire(data[: at[0]]), seconds, *script.of_wire(data[at[0] :])]


def _with_proofs(data: bytes) -> list[Step]:
    return [
        Step(Kind.PROOF) if step.kind is Kind.SASL and _PROVES.search(step.body) else step
        for step in script.of_wire(data)
    ]


async def _sites() -> None:
    """Record a site that follows another one: enqueues, dequeues, and a queue that it did not have."""
    link = replace(members.OPTIONS, name="b", cluster="east")
    async with Broker(members.OPTIONS) as source, Broker(link) as other:
        members.furnish(source)
        with fixed_names():
            async with recording(source.address.port) as (recorder, url):
                await talks.feed(str(source.address))
                site_link.follow(other, f"{url}/?heartbeat=0")
                await _until(lambda: _content(other).get("sited") == [2, 3])
    keep("site_link", "events", script.encode(script.of_wire(bytes(recorder.sent[0][1]))))


def _requests() -> None:
    """Store the requests of administrators."""
    for name, requests in administration.REQUESTS.items():
        keep("management", name, script.encode(management.request(*each) for each in requests))


async def _pair() -> None:
    """Record a backup that catches up and becomes ready, then messages and changes of the wiring."""
    admin = mock.patch.object(Auth, "is_admin", return_value=True)
    arbiter = pair.Arbiter()
    with admin, fixed_names():
        async with pair.member("a", await pair.in_sync_store(), arbiter, pair.Nowhere()) as primary:
            queue = await pair.lead(primary)
            async with recording(primary.address.port) as (recorder, url):
                store = await pair.in_sync_store()
                pair.fill(store)
                factory = pair.factory_to(f"{url}/?heartbeat=0")
                backup = pair.member("b", store, arbiter, factory)
                async with backup:
                    await _until(lambda: backup.membership.role is Role.READY)
                    await _work(primary, queue)
                    await _until(lambda: _content(backup) == _content(primary))
    backup_sent, primary_sent = recorder.sent[0]
    keep("replication_primary", "pair", script.encode(script.of_wire(bytes(backup_sent))))
    keep("replication_backup", "pair", script.encode(script.of_wire(bytes(primary_sent))))


async def _work(primary: Broker, queue: Queue) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(4):
        settled = loop.create_future()
        queue.enqueue(pair.MESSAGE, settled.set_result, None, lifetime=60.0)
        await settled
    assert primary.member is not None
    addresses = primary.addresses
    queue.discard(queue.ids()[:2])
    annotated = queue.annotate(queue.ids()[-1], _ANNOTATIONS)
    assert annotated is not None
    for observer in queue.observers:
        observer.annotated(queue, annotated)
    addresses.declare("second")
    other = addresses.declare("third")
    await primary.member.wiring_settled()
    addresses.delete(other)
    addresses.unbind(addresses.bindings[0])
    await primary.member.wiring_settled()


def _content(broker: Broker) -> dict[str, list[int]]:
    return {queue.name: list(queue.ids()) for queue in broker.addresses}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a tool that runs once
            await asyncio.sleep(0.01)


def _answers() -> None:
    """Return the DNS answers for an SRV seed with two targets, for a name, and for a missing name."""
    service, name = "_amqps._tcp.cluster.example.com.", "cluster.example.com."
    targets = [f"{number} 5 567{number} {host}.{name}" for number, host in enumerate("ab", start=1)]
    both = [("AAAA", ["2001:db8::1", "2001:db8::2"]), ("A", ["192.0.2.1", "192.0.2.2"])]
    srv = _answer(service, "SRV", targets)
    hosts = [_answer(f"{host}.{name}", *each) for host in "ab" for each in both]
    keep(
        "dns_answers", "targets", dns_answers.encode([srv, *hosts, *(_answer(name, *each) for each in both)])
    )
    alias = _answer(name, "A", ["192.0.2.9"], alias="elsewhere.example.net.")
    keep("dns_answers", "alias", dns_answers.encode([srv, alias, alias]))
    nobody = _answer(service, "SRV", [])
    nobody.set_rcode(dns.rcode.NXDOMAIN)
    keep("dns_answers", "nobody", dns_answers.encode([nobody, hosts[1]]))


def _answer(name: str, kind: str, records: list[str], alias: str = "") -> dns.message.Message:
    answer = dns.message.make_response(dns.message.make_query(name, kind))
    if alias:
        answer.answer.append(dns.rrset.from_text(name, 30, "IN", "CNAME", alias))
    if records:
        answer.answer.append(dns.rrset.from_text_list(alias or name, 30, "IN", kind, records))
    return answer


async def _main() -> None:
    _answers()
    await _users()
    await _tokens()
    _requests()
    await _links()
    _secured()
    await _sites()
    await _pair()


if __name__ == "__main__":
    asyncio.run(_main())
