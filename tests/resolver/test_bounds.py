"""A DNS server's answers determine the client's questions and dials, but their number is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.resolver.cache import MOST_NAMES, Answer, Answers
from haclient.resolver.resolve import MOST_SECONDS, MOST_TARGETS, Resolver

NO_HOSTS = Path("/nonexistent/hosts")
SEED = Endpoint("cluster.test", 5672)
Records = Callable[[str, str], list[str]]


class Server(asyncio.DatagramProtocol):
    """A name server that answers from a function, and counts its questions.

    :ivar asked: questions, by name.
    """

    def __init__(self, records: Records, ttl: int) -> None:
        self._records = records
        self._ttl = ttl
        self.asked: Counter[str] = Counter()
        self.port = 0

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        (question,) = query.question
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked[question.name.to_text()] += 1
        answer = dns.message.make_response(query)
        found = self._records(question.name.to_text(), kind)
        if found:
            answer.answer.append(dns.rrset.from_text_list(question.name, self._ttl, "IN", kind, found))
        self._transport.sendto(answer.to_wire(max_size=65_000), addr)


@asynccontextmanager
async def server(records: Records, ttl: int = 30) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(
        lambda: Server(records, ttl), local_addr=("127.0.0.1", 0)
    )
    try:
        yield made
    finally:
        transport.close()


def resolver(of: Server) -> Resolver:
    # Long enough for a slow machine to ask all questions.
    return Resolver(nameserver=f"127.0.0.1:{of.port}", timeout=60.0, hosts=NO_HOSTS)


async def test_an_srv_answer_of_a_thousand_targets_begins_a_bounded_number_of_look_ups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The targets of the lowest priority are used, wherever in the answer they are."""

    def records(_name: str, kind: str) -> list[str]:
        if kind == "SRV":
            return [f"{1000 - number} 0 {5000 + number} t{number}.test." for number in range(1000)]
        return ["10.0.0.1"] if kind == "A" else []

    async with server(records) as asked:
        found = await resolver(asked).resolve(SEED, srv=True)
    assert len(asked.asked) == 1 + MOST_TARGETS
    assert sorted(each.port for each in found) == list(range(6000 - MOST_TARGETS, 6000))
    assert f"1000 SRV records: the client uses the first {MOST_TARGETS}" in caplog.text


async def test_a_name_with_a_thousand_addresses_is_a_bounded_number_of_endpoints() -> None:
    def records(_name: str, kind: str) -> list[str]:
        count = range(1000)
        if kind == "A":
            return [f"10.0.{number // 256}.{number % 256}" for number in count]
        return [f"2001:db8::{number:x}" for number in count]

    async with server(records) as asked:
        found = await resolver(asked).resolve(SEED)
    assert len(found) == 2 * MOST_TARGETS
    assert len({each.host for each in found}) == len(found)


async def test_many_targets_with_many_addresses_are_no_more_endpoints_than_one_name_has() -> None:
    def records(name: str, kind: str) -> list[str]:
        if kind == "SRV":
            return [f"{number} 0 5672 t{number}.test." for number in range(20)]
        own = sum(name.encode())
        return [f"10.{own // 256}.{own % 256}.{number}" for number in range(20)] if kind == "A" else []

    async with server(records) as asked:
        assert len(await resolver(asked).resolve(SEED, srv=True)) == 2 * MOST_TARGETS


async def test_an_answer_that_would_last_for_years_is_asked_for_again_after_an_hour() -> None:
    now = [0.0]
    async with server(lambda _, kind: ["10.0.0.1"] if kind == "A" else [], ttl=2**31 - 1) as asked:
        of = Resolver(nameserver=f"127.0.0.1:{asked.port}", timeout=5.0, clock=lambda: now[0], hosts=NO_HOSTS)
        for now[0], questions in ((0.0, 2), (MOST_SECONDS - 1, 2), (MOST_SECONDS, 4)):
            await of.resolve(SEED)
            assert asked.asked["cluster.test."] == questions


async def test_targets_that_change_with_every_answer_are_not_kept_for_ever() -> None:
    async def ask(name: str, _last: str | None) -> Answer[str]:
        return Answer(name, 1000.0)

    answers, until = Answers(ask, lambda: 0.0), asyncio.get_running_loop().time() + 20
    for number in range(3 * MOST_NAMES):
        await answers.get(f"target-{number}", until)
        assert await answers.get("seed", until) == "seed"
    assert len(answers._kept) == MOST_NAMES
    assert "seed" in answers._kept
