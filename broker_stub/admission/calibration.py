"""How many connections this machine can set up in a second (``--accept-rate measured``).

Theory of operation
-------------------
Real handshakes, both ends in this process, through the engine that serves clients, from the headers
to the Begin that is answered; only the sockets are left out.  What is counted is the processor time of
the member's side, so that a machine that is busy at the moment does not look slow.  The median
of what fits into ``_TIME`` is the cost of one set-up in memory.

Rules
-----
* A set-up over a socket costs more than one in memory: ``_SOCKET`` times as much.  Where nobody may come
  without a password, the server's part of SCRAM comes on top (``_SCRAM_ITERATIONS``).  Where some may, those
  with one are taken for the few, like the cluster-admin; a member with many of both wants ``auto``.
* Half of what a core can do is for newcomers (``_SHARE``); the other half is for those already in, for
  whom the newcomers then attach links and send, and for refusing the others.
* TLS is measured with the member's own certificate, and without a client's: a handshake that
  fails for want of one counts as far as it goes.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import proton

from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.protocol import Ending, Engine
from haclient.engine.settings import Settings

_T = TypeVar("_T")

# Seconds that a measurement takes; a start is not slower for it than anybody sees.
_TIME = 0.06
_SHARE = 0.5
# Measured with benchmarks/bench_flood.py --cost: accept, the loop and the kernel, beside the engine.
_SOCKET = 2.5
# RFC 5802's Hi() with 4096 iterations; Cyrus calls HMAC anew for each, and takes so many times as long.
_SCRAM_ITERATIONS, _SCRAM_FACTOR = 4096, 5.5
# Turns of both ends until something is wrong: a handshake with TLS takes about ten.
_MOST_TURNS = 100


def measure(settings: Settings) -> float:
    """Set-ups a second that a member with these settings should admit.

    :param settings: the member's, for the connections of its clients.
    """
    server = settings.sasl_server
    # The same directory: Cyrus reads its configuration once in a process.
    offered = None if server is None else replace(server, mechanisms=("ANONYMOUS",))
    anonymous = replace(settings, sasl_server=offered)
    costs: list[float] = []
    end = time.monotonic() + _TIME
    while time.monotonic() < end or not costs:
        costs.append(handshake(anonymous))
    return _SHARE / (statistics.median(costs) * _SOCKET + password_cost(settings))


def password_cost(settings: Settings) -> float:
    """Processor seconds of a password's check; none where it is not needed."""
    server = settings.sasl_server
    if server is None or server.config_dir is None or "ANONYMOUS" in server.mechanisms:
        return 0.0
    begin = time.thread_time()
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt of 16 bytes", _SCRAM_ITERATIONS)
    return (time.thread_time() - begin) * _SCRAM_FACTOR


def handshake(settings: Settings) -> float:
    """Set one connection up in memory; the processor seconds of the member's side."""
    clock = _Stopwatch()
    server, client = clock.timed(_End, settings), _End(_client_settings(settings))
    client.engine.open()
    client.engine.begin()
    for _ in range(_MOST_TURNS):
        server_hears = client.turn()
        clock.timed(server.hear, server_hears)
        client.hear(clock.timed(server.turn))
        if client.begun or client.engine.ending is not None:
            break
    clock.timed(server.engine.abort)
    client.engine.abort()
    return clock.seconds


def _client_settings(settings: Settings) -> Settings:
    domain = None
    if settings.tls_domain is not None:
        domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
        domain.set_peer_authentication(proton.SSLDomain.ANONYMOUS_PEER)
    return Settings(container_id="calibration", mechanisms=("ANONYMOUS",), tls_domain=domain)


class _Stopwatch:
    """Adds up the processor time of what is called through it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., _T], *arguments: Any) -> _T:
        begin = time.thread_time()
        result = call(*arguments)
        self.seconds += time.thread_time() - begin
        return result


class _End:
    """One end of a connection in memory: the engine's owner, its socket and its event loop in one."""

    def __init__(self, settings: Settings) -> None:
        self.begun = False
        self._serves = settings.sasl_server is not None
        self._output = bytearray()
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.engine = Engine(self, settings, cast("asyncio.AbstractEventLoop", self))
        self.engine.connection_made(cast("asyncio.Transport", self))

    def turn(self) -> bytes:
        """Do what is due; what is sent to the other end."""
        soon, self._soon = self._soon, []
        for call, arguments in soon:
            call(*arguments)
        sent = bytes(self._output)
        self._output.clear()
        return sent

    def hear(self, data: bytes) -> None:
        """What the other end sent."""
        if data and self.engine.ending is None:
            self.engine.data_received(data)

    # -- the owner ------------------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """The peer's Open."""
        if self._serves:
            engine.open(properties={"product": "calibration", "haclient:generation": proton.ulong(1)})

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """The peer's Begin."""
        self.begun = True
        if self._serves:
            session.open()
            engine.wake()

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Nobody attaches."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Nobody closes."""

    def writable_again(self, engine: Engine) -> None:
        """It always is."""

    def ended(self, engine: Engine, ending: Ending) -> None:
        """Measured."""

    # -- the socket -----------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        """As much as comes."""

    def is_closing(self) -> bool:
        """Not before the end."""
        return False

    def write(self, data: bytes) -> None:
        """Keep it for the next turn."""
        self._output += data

    def close(self) -> None:
        """Nothing to give back."""

    abort = close

    # -- the event loop -------------------------------------------------------------------------

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> _Never:
        """In the next turn."""
        self._soon.append((call, arguments))
        return _NEVER

    def call_later(self, _delay: float, _call: Callable[..., object], *_arguments: Any) -> _Never:
        """A handshake in memory does not live that long."""
        return _NEVER

    call_at = call_later

    def time(self) -> float:
        """Seconds."""
        return time.monotonic()


class _Never:
    """The handle of a call that nobody takes back."""

    def cancel(self) -> None:
        """Nothing."""


_NEVER = _Never()
