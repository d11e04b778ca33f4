"""Measures the connection setups per second of this machine (``--accept-rate measured``).

Theory of operation
-------------------
The measurement runs real handshakes with both ends in this process, through the engine that serves clients.
They go from the headers to the answered Begin, without sockets. Only processor time of the member's side
counts, so that a busy machine does not look slow. The cost of one setup in memory is the median of
``_HANDSHAKES`` runs, or of as many as fit into ``_TIME``. The first runs fill caches; they count only if
there is no time for more.

Rules
-----
* A setup over a socket costs ``_SOCKET`` times as much as one in memory.
* If every client needs a password, the client logs in by SCRAM. If anonymous clients are allowed, few clients
  are assumed to have a password; a member with many of both should use ``auto``.
* New connections get half of a core (``_SHARE``). The other half is for established connections and for
  refusing clients.
* TLS is measured with the member's own certificate and without a client certificate. If the handshake fails
  because that is required, the cost up to that point counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import proton

from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.sasl.mechanisms import FEWEST_ITERATIONS
from haclient.engine.sasl.users import ScramKeys, derive
from haclient.engine.settings import SaslServer, Settings
from haclient.engine.tls import TlsFiles, client_context

_T = TypeVar("_T")

# Seconds that a measurement takes, at most: not noticeable during a start.
_TIME = 0.06
_WARM_UP, _HANDSHAKES = 10, 25
_SCRAM = "SCRAM-SHA-256"
_SHARE = 0.5
# Measured with benchmarks/bench_flood.py --cost: accept, loop and kernel, in addition to the engine.
_SOCKET = 2.5
# Steps of both ends before giving up: a handshake with TLS takes about ten.
_MAX_STEPS = 100


def measure(settings: Settings) -> float:
    """Return the setups per second that a member with these settings should admit.

    :param settings: the member's settings for client connections.
    """
    server = settings.sasl_server
    needs_password = server is not None and server.users is not None and server.requires_sasl
    offered = SaslServer(mechanisms=(_SCRAM,), users=_OneUser()) if needs_password else SaslServer()
    measured = replace(settings, sasl_server=offered)
    costs: list[float] = []
    end = time.monotonic() + _TIME
    while len(costs) < _WARM_UP + _HANDSHAKES and (time.monotonic() < end or not costs):
        costs.append(handshake(measured))
    costs = costs[_WARM_UP:] or costs
    median = sorted(costs)[len(costs) // 2]  # ``statistics`` loads decimal and fractions: a megabyte
    return _SHARE / (median * _SOCKET)


def handshake(settings: Settings) -> float:
    """Set up one connection in memory; return the processor seconds of the member's side."""
    clock = _Stopwatch()
    server, client = clock.timed(_End, settings), _End(_client_settings(settings))
    client.engine.open()
    client.engine.begin()
    for _ in range(_MAX_STEPS):
        to_server = client.step()
        clock.timed(server.feed, to_server)
        client.feed(clock.timed(server.step))
        if client.begun or client.engine.close_reason is not None:
            break
    clock.timed(server.engine.abort)
    client.engine.abort()
    return clock.seconds


def _client_settings(settings: Settings) -> Settings:
    context = None
    if settings.tls_context is not None:
        context = client_context(TlsFiles(verify=False))
    assert settings.sasl_server is not None
    user = None if settings.sasl_server.users is None else "calibration"
    return Settings(container_id="calibration", user=user, password=user, tls_context=context)


class _OneUser:
    """The user of the calibration, whose password is its name."""

    mechanisms = (_SCRAM,)

    def __init__(self) -> None:
        self._keys = derive(_SCRAM, "calibration", bytes(16), FEWEST_ITERATIONS)

    def keys(self, _mechanism: str, _name: str) -> ScramKeys:
        return self._keys


class _Stopwatch:
    """Adds up the processor time of the calls made through it."""

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
        self._scheduled: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.engine = Engine(self, settings, cast("asyncio.AbstractEventLoop", self))
        self.engine.connection_made(cast("asyncio.Transport", self))

    def step(self) -> bytes:
        """Run the scheduled calls; return the bytes for the other end."""
        soon, self._scheduled = self._scheduled, []
        for call, arguments in soon:
            call(*arguments)
        sent = bytes(self._output)
        self._output.clear()
        return sent

    def feed(self, data: bytes) -> None:
        """Feed the bytes from the other end to the engine."""
        if data and self.engine.close_reason is None:
            self.engine.data_received(data)

    # -- the owner ------------------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Answer the peer's Open, on the member's side."""
        if self._serves:
            engine.open(properties={"product": "calibration", "haclient:generation": proton.ulong(1)})

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Note the peer's Begin, and answer it on the member's side."""
        self.begun = True
        if self._serves:
            session.open()
            engine.wake()

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Do nothing: no client attaches a link here."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Do nothing: neither end closes."""

    def writable_again(self, engine: Engine) -> None:
        """Do nothing: no socket can be full."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Do nothing: the measurement ended."""

    # -- the socket -----------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the buffer has no limit."""

    def is_closing(self) -> bool:
        """Return false: the connection stays open until the end."""
        return False

    def get_extra_info(self, _name: str) -> None:
        """Return nothing: there is no peer and no TLS here."""

    def write(self, data: bytes) -> None:
        """Keep the bytes for the next step."""
        self._output += data

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    abort = close

    # -- the event loop -------------------------------------------------------------------------

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> _NullHandle:
        """Schedule a call for the next step."""
        self._scheduled.append((call, arguments))
        return _NULL_HANDLE

    def call_later(self, _delay: float, _call: Callable[..., object], *_arguments: Any) -> _NullHandle:
        """Ignore the call: a handshake in memory ends before any timer."""
        return _NULL_HANDLE

    call_at = call_later

    def time(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()


class _NullHandle:
    """The handle of a call that is never cancelled."""

    def cancel(self) -> None:
        """Do nothing."""


_NULL_HANDLE = _NullHandle()
