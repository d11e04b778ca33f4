"""The reconnect policies of other clients, with the parameters that they publish.

Each is a series of delays: the first before the first attempt after a loss, the next after each
failed attempt.  They ignore ``retry-after``.  What one of them does besides (several servers, limits after
which the application gets an error) is left out unless it is said here.

``clips`` marks those that cut a delay to the longest one *after* they have drawn it: many clients
then wait exactly that long, and come back together.

Sources are the projects' own files and pages, as of 2026; where two versions differ, the version is named.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, repeat

Delays = Callable[[random.Random], Iterator[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The policy of another client.

    :param client: whose it is.
    :param parameters: the published ones, for people.
    :param source: where they are published.
    :param delays: seconds; endless.
    :param clips: whether draws are cut to the cap, so that they pile up on it.
    :param from_start: delays count from the beginning of the last attempt, not from its end.
    :param attempt_timeout: seconds for one attempt.
    """

    name: str
    client: str
    parameters: str
    source: str
    delays: Delays
    clips: bool = False
    from_start: bool = False
    attempt_timeout: float = 10.0


def doubling(first: float, cap: float) -> Iterator[float]:
    """``first`` and its doubles up to ``cap``, without jitter."""
    delay = first
    while True:
        yield delay
        delay = min(cap, 2 * delay)


def proton(_: random.Random) -> Iterator[float]:
    """0, then 0.1 s doubling to 10 s."""
    yield 0.0
    yield from doubling(0.1, 10.0)


def qpid_jms(_: random.Random) -> Iterator[float]:
    """0, then 10 ms doubling to 30 s."""
    yield 0.0
    yield from doubling(0.01, 30.0)


def rhea(_: random.Random) -> Iterator[float]:
    """0.1 s doubling to 60 s."""
    return doubling(0.1, 60.0)


def nats(rng: random.Random) -> Iterator[float]:
    """2 s and up to 0.1 s more, before every attempt when there is one server."""
    return (2.0 + rng.uniform(0, 0.1) for _ in repeat(None))


def grpc(rng: random.Random) -> Iterator[float]:
    """0, then 1 s, then growing by 1.6 to 120 s, all but the first two within 20 % of that.

    The jitter comes after the cap, so a delay may be longer than that.
    """
    yield 0.0
    yield 1.0
    ceiling = 1.0
    while True:
        ceiling = min(ceiling * 1.6, 120.0)
        yield ceiling + rng.uniform(-0.2 * ceiling, 0.2 * ceiling)


def kafka(rng: random.Random) -> Iterator[float]:
    """50 ms doubling to 1 s, within 20 % of that, then cut to 1 s."""
    longest = math.log2(1.0 / 0.05)
    for failures in count():
        yield min(1.0, rng.uniform(0.8, 1.2) * 0.05 * 2 ** min(failures, longest))


def redis_py(rng: random.Random) -> Iterator[float]:
    """Three retries, evenly from 0 to 2, 4 and 8 s, then an application that calls again at once."""
    while True:
        for failures in (1, 2, 3):
            yield min(10.0, rng.random() * 2**failures)
        yield 0.0


def mongodb(_: random.Random) -> Iterator[float]:
    """At once, then every 0.5 s."""
    yield 0.0
    yield from repeat(0.5)


_AWS_BASE, _AWS_CAP = 0.005, 2.0


def _aws_ceilings() -> Iterator[float]:
    yield from doubling(2 * _AWS_BASE, _AWS_CAP)


def aws_full(rng: random.Random) -> Iterator[float]:
    """Evenly from 0 to the ceiling, which doubles from 10 ms to 2 s."""
    return (rng.uniform(0, ceiling) for ceiling in _aws_ceilings())


def aws_equal(rng: random.Random) -> Iterator[float]:
    """Evenly from half the ceiling to the ceiling."""
    return (ceiling / 2 + rng.uniform(0, ceiling / 2) for ceiling in _aws_ceilings())


def aws_decorrelated(rng: random.Random) -> Iterator[float]:
    """Evenly from 5 ms to three times the last delay, then cut to 2 s."""
    delay = _AWS_BASE
    while True:
        delay = min(_AWS_CAP, rng.uniform(_AWS_BASE, 3 * delay))
        yield delay


_AWS = (
    'AWS Architecture Blog 2015, "Exponential Backoff And Jitter"; '
    "aws-samples/aws-arch-backoff-simulator, src/backoff_simulator.py"
)
_AWS_PARAMETERS = "base 5 ms, cap 2 s, factor 2"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="proton",
            client="python-qpid-proton 0.40, reactor.Backoff",
            parameters="first 0, initial 0.1 s, factor 2, max_delay 10 s, no jitter",
            source="proton/_reactor.py, delay_iter",
            delays=proton,
        ),
        Preset(
            name="qpid-jms",
            client="Apache Qpid JMS 1 and 2, failover provider",
            parameters="initialReconnectDelay 0, reconnectDelay 10 ms, reconnectBackOffMultiplier 2, "
            "maxReconnectDelay 30 s, no jitter",
            source="apache/qpid-jms, .../provider/failover/FailoverProvider.java",
            delays=qpid_jms,
        ),
        Preset(
            name="rhea",
            client="rhea 3 (JavaScript)",
            parameters="initial_reconnect_delay 100 ms, factor 2, max_reconnect_delay 60 s, no jitter",
            source="amqp/rhea, lib/connection.js, backoff()",
            delays=rhea,
        ),
        Preset(
            name="nats",
            client="nats.go 1",
            parameters="ReconnectWait 2 s, ReconnectJitter 100 ms (without TLS)",
            source="nats-io/nats.go, nats.go, doReconnect()",
            delays=nats,
        ),
        Preset(
            name="grpc",
            client="gRPC, all languages",
            parameters="INITIAL_BACKOFF 1 s, MULTIPLIER 1.6, MAX_BACKOFF 120 s, JITTER 0.2, "
            "MIN_CONNECT_TIMEOUT 20 s",
            source="grpc/grpc, doc/connection-backoff.md",
            delays=grpc,
            from_start=True,
            attempt_timeout=20.0,
        ),
        Preset(
            name="kafka",
            client="Apache Kafka 4 clients (Java)",
            parameters="reconnect.backoff.ms 50, reconnect.backoff.max.ms 1000, factor 2, jitter 0.2",
            source="apache/kafka, .../common/utils/ExponentialBackoff.java and "
            ".../clients/ClusterConnectionStates.java; KIP-144",
            delays=kafka,
            clips=True,
        ),
        Preset(
            name="redis-py",
            client="redis-py 6 and 7",
            parameters="ExponentialWithJitterBackoff(base=1, cap=10), retries 3",
            source="redis/redis-py, redis/backoff.py, redis/retry.py, redis/client.py",
            delays=redis_py,
        ),
        Preset(
            name="mongodb",
            client="MongoDB drivers, all languages",
            parameters="minHeartbeatFrequencyMS 500 while operations wait, no jitter",
            source="mongodb/specifications, source/server-discovery-and-monitoring/server-monitoring.md",
            delays=mongodb,
        ),
        Preset(
            name="aws-full",
            client="AWS, full jitter",
            parameters=_AWS_PARAMETERS,
            source=_AWS,
            delays=aws_full,
        ),
        Preset(
            name="aws-equal",
            client="AWS, equal jitter",
            parameters=_AWS_PARAMETERS,
            source=_AWS,
            delays=aws_equal,
        ),
        Preset(
            name="aws-decorrelated",
            client="AWS, decorrelated jitter",
            parameters=_AWS_PARAMETERS,
            source=_AWS,
            delays=aws_decorrelated,
            clips=True,
        ),
    )
}
