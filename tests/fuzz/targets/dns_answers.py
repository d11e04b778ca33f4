"""DNS answers for an SRV seed and for a name, from any server that can answer for it.

An input is a sequence of answers, one for each question: two bytes of length, two of flags, three
counts of two bytes each, and the message after its question (RFC 1035, section 4.1).

Rules: the resolver returns endpoints or raises ``ResolutionError``. Every endpoint has a literal
address and a valid port. Its TLS verifies the user's name, or a name in that domain. The numbers of
endpoints and of questions are bounded. The topology accepts the endpoints.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest import mock

import dns.asyncquery
import dns.exception
import dns.message

from haclient.cluster_url.authority import is_address
from haclient.cluster_url.domain import parent_domain
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Resolved
from haclient.discovery.topology import Topology, update
from haclient.resolver import resolve
from haclient.resolver.resolve import MOST_TARGETS, ResolutionError, Resolver
from tests.fuzz.target import Defect, Target
from tests.fuzz.wire import DefectLog, Loop

_SEED = Endpoint("cluster.example.com", 5671, tls=True)
_TIMEOUT = 2.0
_HEADER = 8
_QUESTION = 12
# dnspython repeats within the time-out, after a tenth of a second and then after doubled delays, by TCP as
# well.
_MOST_REPEATED = 20
_COLLECT_EVERY = 500


class Answers(Target):
    name = "dns_answers"
    words = (
        *(b"\xc0\x0c", b"\xc0\x1c", b"\x00\x01\x00\x01", b"\x00\x1c\x00\x01", b"\x00\x21\x00\x01"),
        *(
            b"\x00\x05\x00\x01",
            b"\x07example\x03com\x00",
            b"\x01a\x07cluster\x07example\x03com\x00",
            b"\x84\x00",
        ),
    )

    def __init__(self) -> None:
        self._log = DefectLog()
        self._loop = Loop()
        asyncio.set_event_loop(self._loop)
        self._context = ssl.create_default_context()
        self._answers: list[bytes] = []
        self._asked = count()
        self._runs = 0
        self._patches = [mock.patch.object(dns.asyncquery, name, self._answer) for name in ("udp", "tcp")]
        for patch in self._patches:
            patch.start()

    def run(self, data: bytes) -> None:
        self._answers, self._asked = list(decode(data)), count()
        resolving = self._loop.create_task(self._resolve())
        self._loop.turn()
        self._loop.advance(4 * _TIMEOUT)
        if not resolving.done():
            raise Defect("it takes longer than its time-out")
        self._log.check(self._loop)
        resolving.result()
        asked = next(self._asked)
        if asked > _MOST_REPEATED * (1 + 2 * MOST_TARGETS):
            raise Defect(f"{asked} questions")
        self._runs += 1
        if not self._runs % _COLLECT_EVERY:
            gc.collect()

    async def _resolve(self) -> None:
        resolver = Resolver(
            nameserver="192.0.2.1", timeout=_TIMEOUT, clock=self._loop.time, hosts="/dev/null"
        )
        topology = Topology(seeds=(_SEED,))
        for srv in (True, False):
            try:
                found = await resolver.resolve(_SEED, srv=srv)
            except ResolutionError as error:
                if not error.reason:
                    raise Defect("an error that says nothing") from error
                continue
            self._check(found)
            topology = update(topology, Resolved(_SEED, found))
            if set(topology.candidates()) != set(found):
                raise Defect("the topology has other candidates")
        await resolver.close()

    def _check(self, found: tuple[Endpoint, ...]) -> None:
        if not 0 < len(found) <= 2 * MOST_TARGETS:
            raise Defect(f"{len(found)} endpoints")
        for each in found:
            if not is_address(each.host) or not 0 < each.port < 2**16 or not each.tls:
                raise Defect(f"{each} cannot be dialled")
            domain = parent_domain(_SEED.host) or _SEED.host
            if each.tls_name != _SEED.host and not each.tls_name.endswith(f".{domain}"):
                raise Defect(f"TLS verifies {each.tls_name}")
            self._context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=each.tls_name)

    async def _answer(self, query: dns.message.Message, where: str, **options: Any) -> dns.message.Message:
        """Return the server's message. An invalid one is ignored over UDP, and an error over TCP."""
        number = next(self._asked)
        if not self._answers:
            raise dns.exception.Timeout(timeout=_TIMEOUT)
        answer = self._answers[number % len(self._answers)]
        asked = query.to_wire()
        wire = asked[:2] + answer[:2] + asked[4:6] + answer[2:_HEADER] + asked[_QUESTION:] + answer[_HEADER:]
        truncates = bool(options.get("raise_on_truncation"))
        try:
            message = dns.message.from_wire(wire, ignore_trailing=False, raise_on_truncation=truncates)
        except dns.message.Truncated:
            raise
        except Exception:
            if truncates:
                raise dns.exception.Timeout(timeout=_TIMEOUT) from None
            raise
        if not query.is_response(message):
            raise dns.exception.Timeout(timeout=_TIMEOUT)
        return message

    def planted(self) -> AbstractContextManager[object]:
        """TLS verifies the target's own name, in any domain."""
        return mock.patch.object(
            resolve, "verified_name", lambda _name, target: target.removesuffix(".").lower()
        )

    def close(self) -> None:
        for patch in self._patches:
            patch.stop()
        self._log.close()
        self._loop.close()


def decode(data: bytes) -> Iterable[bytes]:
    """Yield the answers of an input."""
    while len(data) > 2:
        size = 2 + int.from_bytes(data[:2])
        yield data[2:size].ljust(_HEADER, b"\0")
        data = data[size:]


def encode(answers: Iterable[dns.message.Message]) -> bytes:
    """Encode servers' answers as an input."""
    return b"".join(len(each).to_bytes(2) + each for each in map(_without_question, answers))


def _without_question(answer: dns.message.Message) -> bytes:
    wire = answer.to_wire()
    question = len(dns.message.make_query(answer.question[0].name, answer.question[0].rdtype).to_wire())
    return wire[2:4] + wire[6:_QUESTION] + wire[question:]


TARGET = Answers
