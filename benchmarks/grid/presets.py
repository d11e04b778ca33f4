"""The reconnect policies of other clients, with the parameters that they publish.

Each is a series of delays: the first before the first attempt after a loss, the next after each
failed attempt.  They ignore ``retry-after``.  Limits after which the application gets an error are left out,
unless the preset describes the next step.  With several members, each uses its own ``Order``.

``clips`` marks policies that cut a delay to the maximum *after* drawing it.  Then many clients wait exactly
that long, and come back together.

Sources are the projects' own files, read in November 2026; where versions or languages differ, the preset
says which one it follows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, repeat
from typing import Literal

Delays = Callable[[random.Random], Iterator[float]]

Order = Literal["next", "each", "delay-first", "delay-last", "ready", "apart"]
"""How a client goes through several members:

- ``next``: a delay before every attempt; the attempts go to the members in turn.
- ``each``: as ``next``, but a delay is used once for every member before the series goes on.
- ``delay-first``: a delay, then the whole list without a pause.
- ``delay-last``: the list without a pause, but the delay before its last member.
- ``ready``: each member has a series of its own, from its own last failure.  There is one attempt at a time,
  to the member whose delay ends first.  Only the lost member has a delay before its first attempt.
- ``apart``: each member has a series of its own, and attempts at different members run concurrently.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The policy of another client.

    :param client: name of the client.
    :param parameters: published parameters, for people.
    :param source: the project, its version, and the files.
    :param delays: seconds; endless.
    :param order: how it uses several members.
    :param after_lost: whether the first attempt goes to the member after the lost one.
    :param clips: whether draws are cut to the cap, so that they pile up on it.
    :param from_start: delays count from the beginning of the last attempt, not from its end.
    :param attempt_timeout: seconds for one attempt; infinite if only the kernel ends it.  With
        ``from_start``, an attempt has at least the time of the delay that runs concurrently.
    :param attempt_timeouts: the same, if it changes from attempt to attempt; endless.
    """

    name: str
    client: str
    parameters: str
    source: str
    delays: Delays
    order: Order = "next"
    after_lost: bool = False
    clips: bool = False
    from_start: bool = False
    attempt_timeout: float = 10.0
    attempt_timeouts: Delays | None = None

    def series(self, rng: random.Random, members: int) -> Iterator[float]:
        """The delays of a client that knows so many members, one before each attempt.

        With the orders ``ready`` and ``apart`` it is the series of one member.
        """
        others = members - 1
        for delay in self.delays(rng):
            match self.order:
                case "each":
                    yield from repeat(delay, members)
                case "delay-first":
                    yield from chain((delay,), repeat(0.0, others))
                case "delay-last":
                    yield from chain(repeat(0.0, others), (delay,))
                case _:
                    yield delay

    def timeouts(self, rng: random.Random) -> Iterator[float]:
        """The seconds for each attempt."""
        return repeat(self.attempt_timeout) if self.attempt_timeouts is None else self.attempt_timeouts(rng)


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
    """0, then 1 s growing by 1.6 to 120 s, all within 20 % of that.

    The jitter comes after the cap, so a delay may be longer than that.  The specification and Go wait
    exactly 1 s after the first failure; C++, Python and Java draw that delay as well.
    """
    yield 0.0
    ceiling = 1.0
    while True:
        yield ceiling * rng.uniform(0.8, 1.2)
        ceiling = min(ceiling * 1.6, 120.0)


def _kafka_backoff(rng: random.Random, first: float, longest: float) -> Iterator[float]:
    """``first`` doubling to ``longest``, within 20 % of that, then cut to ``longest``."""
    exponent = math.log2(longest / first)
    for failures in count():
        yield min(longest, rng.uniform(0.8, 1.2) * first * 2 ** min(failures, exponent))


def kafka(rng: random.Random) -> Iterator[float]:
    """50 ms doubling to 1 s, within 20 % of that, then cut to 1 s."""
    return _kafka_backoff(rng, 0.05, 1.0)


def kafka_timeouts(rng: random.Random) -> Iterator[float]:
    """10 s doubling to 30 s, likewise."""
    return _kafka_backoff(rng, 10.0, 30.0)


_REDIS_BASE, _REDIS_CAP, _REDIS_RETRIES = 0.01, 1.0, 10


def redis_delay(rng: random.Random, failures: int, base: float, cap: float) -> float:
    """Evenly from 0 to ``base`` times 2 to the power of ``failures``, then cut to ``cap``."""
    return min(cap, rng.random() * base * 2.0**failures)


def redis_py(rng: random.Random) -> Iterator[float]:
    """Ten retries of the command, each of which connects with ten retries of its own.

    Then the application gets the error and calls again at once: a connect with ten retries each time.
    """
    for failures in range(1, _REDIS_RETRIES + 1):
        yield redis_delay(rng, failures, _REDIS_BASE, _REDIS_CAP)
        yield from _redis_connect(rng)
    while True:
        yield 0.0
        yield from _redis_connect(rng)


def _redis_connect(rng: random.Random) -> Iterator[float]:
    for failures in range(1, _REDIS_RETRIES + 1):
        yield redis_delay(rng, failures, _REDIS_BASE, _REDIS_CAP)


def mongodb(_: random.Random) -> Iterator[float]:
    """At once, then every 0.5 s."""
    yield 0.0
    yield from repeat(0.5)


_AWS_BASE, _AWS_CAP = 0.005, 2.0


def full_jitter(cap: float, rng: random.Random) -> Iterator[float]:
    """Evenly from 0 to the ceiling, which doubles from 10 ms to ``cap``."""
    return (rng.uniform(0, ceiling) for ceiling in doubling(2 * _AWS_BASE, cap))


def equal_jitter(cap: float, rng: random.Random) -> Iterator[float]:
    """Evenly from half the ceiling to the ceiling."""
    return (ceiling / 2 + rng.uniform(0, ceiling / 2) for ceiling in doubling(2 * _AWS_BASE, cap))


def aws_decorrelated(rng: random.Random) -> Iterator[float]:
    """Evenly from 5 ms to three times the last delay, then cut to 2 s."""
    delay = _AWS_BASE
    while True:
        delay = min(_AWS_CAP, rng.uniform(_AWS_BASE, 3 * delay))
        yield delay


_AWS = (
    'AWS Architecture Blog 2015, "Exponential Backoff And Jitter"; '
    "aws-samples/aws-arch-backoff-simulator of February 2015, src/backoff_simulator.py"
)
_AWS_PARAMETERS = "base 5 ms, cap 2 s, factor 2; no attempt timeout published, here 10 s"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="proton",
            client="python-qpid-proton 0.40, Container",
            parameters="first 0, initial 0.1 s, factor 2, max_delay 10 s, no jitter, no attempt timeout; "
            "each delay once for every address",
            source="apache/qpid-proton 0.40.0, python/proton/_reactor.py, delay_iter and _Connector",
            delays=proton,
            order="each",
            attempt_timeout=math.inf,
        ),
        Preset(
            name="qpid-jms",
            client="Apache Qpid JMS 1 and 2, failover provider",
            parameters="initialReconnectDelay 0, reconnectDelay 10 ms, reconnectBackOffMultiplier 2, "
            "maxReconnectDelay 30 s, no jitter; transport.connectTimeout 60 s; all addresses in one attempt",
            source="apache/qpid-jms 2.10.0, .../jms/provider/failover/FailoverProvider.java and "
            "FailoverUriPool.java; .../jms/transports/TransportOptions.java",
            delays=qpid_jms,
            order="delay-first",
            after_lost=True,
            attempt_timeout=60.0,
        ),
        Preset(
            name="rhea",
            client="rhea 3 (JavaScript)",
            parameters="initial_reconnect_delay 100 ms, factor 2, max_reconnect_delay 60 s, no jitter, "
            "no attempt timeout",
            source="amqp/rhea 3.0.4, lib/connection.js, backoff()",
            delays=rhea,
            attempt_timeout=math.inf,
        ),
        Preset(
            name="nats",
            client="nats.go 1",
            parameters="ReconnectWait 2 s, ReconnectJitter 100 ms (1 s with TLS), Timeout 2 s; "
            "waits before the last server of the list",
            source="nats-io/nats.go 1.53.1, nats.go, doReconnect() and selectNextServer()",
            delays=nats,
            order="delay-last",
            after_lost=True,
            attempt_timeout=2.0,
        ),
        Preset(
            name="grpc",
            client="gRPC for C++, Python and Java",
            parameters="INITIAL_BACKOFF 1 s, MULTIPLIER 1.6, MAX_BACKOFF 120 s, JITTER 0.2, "
            "MIN_CONNECT_TIMEOUT 20 s; a series for every address",
            source="grpc/grpc 1.85, doc/connection-backoff.md, src/core/util/backoff.cc and "
            "src/core/client_channel/subchannel.cc; grpc/grpc-java, "
            ".../io/grpc/internal/ExponentialBackoffPolicy.java",
            delays=grpc,
            order="apart",
            from_start=True,
            attempt_timeout=20.0,
        ),
        Preset(
            name="kafka",
            client="Apache Kafka 4 clients (Java)",
            parameters="reconnect.backoff.ms 50, reconnect.backoff.max.ms 1000, factor 2, jitter 0.2; "
            "socket.connection.setup.timeout.ms 10000 doubling to 30000; a series for every node, "
            "one connect at a time",
            source="apache/kafka 4.0, .../common/utils/ExponentialBackoff.java, "
            ".../clients/ClusterConnectionStates.java and .../clients/NetworkClient.java; KIP-144, KIP-601",
            delays=kafka,
            order="ready",
            clips=True,
            attempt_timeouts=kafka_timeouts,
        ),
        Preset(
            name="redis-py",
            client="redis-py 8",
            parameters="ExponentialWithJitterBackoff(base=0.01, cap=1), 10 retries of the command and of "
            "each connect in it, socket_connect_timeout 5 s (6 and 7: base 1, cap 10, 3 retries)",
            source="redis/redis-py 8.1.0, redis/_defaults.py, redis/backoff.py, redis/retry.py, "
            "redis/client.py, redis/connection.py",
            delays=redis_py,
            clips=True,
            attempt_timeout=5.0,
        ),
        Preset(
            name="mongodb",
            client="MongoDB drivers; the timeout is PyMongo's",
            parameters="minHeartbeatFrequencyMS 500 after each check while operations wait, no jitter; "
            "connectTimeoutMS 20000; a monitor for every server",
            source="mongodb/specifications of August 2026, "
            "source/server-discovery-and-monitoring/server-monitoring.md; mongodb/mongo-python-driver 4.17, "
            "pymongo/synchronous/monitor.py, pymongo/periodic_executor.py, pymongo/common.py",
            delays=mongodb,
            order="apart",
            attempt_timeout=20.0,
        ),
        Preset(
            name="aws-full",
            client="AWS, full jitter",
            parameters=_AWS_PARAMETERS,
            source=_AWS,
            delays=partial(full_jitter, _AWS_CAP),
        ),
        Preset(
            name="aws-equal",
            client="AWS, equal jitter",
            parameters=_AWS_PARAMETERS,
            source=_AWS,
            delays=partial(equal_jitter, _AWS_CAP),
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


def _jitter(name: str, draw: Callable[[float, random.Random], Iterator[float]], cap: float) -> Preset:
    return Preset(
        name=f"{name} jitter, {cap:g} s",
        client=f"AWS, {name} jitter",
        parameters=f"base 5 ms, cap {cap:g} s, factor 2; attempt timeout 10 s",
        source=_AWS,
        delays=partial(draw, cap),
    )


JITTERS: Sequence[Preset] = tuple(
    _jitter(name, draw, cap)
    for name, draw in (("full", full_jitter), ("equal", equal_jitter))
    for cap in (1.0, 2.0, 10.0)
)
"""The jitters of AWS with other caps beside theirs of 2 s."""
