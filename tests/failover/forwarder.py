"""A TCP forwarder on its own thread, for both APIs: it cuts, freezes, and changes its target.

A *cut* ends one connection at a chosen place of its byte stream, often in the middle of a frame.  ``Cut``
selects a reset or an orderly FIN.  ``Cuts`` draws cuts at random, from a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_CHUNK = 16384
_PATIENCE = 10.0
# Seconds that the other ends of a cut connection have to close.
_LINGER = 2.0
# SASL, Open, Begin and Attach of both sides together are shorter; after it the links are attached.
_HANDSHAKE = 2000
# SO_LINGER on, for zero seconds: close sends a reset.
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Cut:
    """The place at which one connection ends.

    :param after: bytes in both directions before the cut.
    :param upstream: True to cut the client's stream, False to cut the stream to the client.
    :param reset: True for a RST, False for a FIN.
    """

    after: int
    upstream: bool
    reset: bool
    passed: int = 0


@dataclass(slots=True)
class Cuts:
    """Draws cuts, until ``count`` established connections were cut.

    :param span: bytes; a cut falls somewhere in the first ``span`` of a connection.
    :param in_handshake: the share of cuts in the handshake; they do not count.
    :param upstream: the share of cuts in the client's stream.
    """

    rng: random.Random
    count: int
    span: int
    in_handshake: float = 0.15
    upstream: float = 0.5
    made: list[Cut] = field(default_factory=list)
    all_made: threading.Event = field(default_factory=threading.Event)

    def draw(self) -> Cut | None:
        """Draw the cut of the next connection."""
        if self.all_made.is_set():
            return None
        early = self.rng.random() < self.in_handshake
        after = self.rng.randrange(1, _HANDSHAKE) if early else self.rng.randrange(_HANDSHAKE, self.span)
        return Cut(after, self.rng.random() < self.upstream, self.rng.random() < 0.5)

    def done(self, cut: Cut) -> None:
        """Record that a connection was cut."""
        self.made.append(cut)
        if len(self.established) >= self.count:
            self.all_made.set()

    @property
    def established(self) -> list[Cut]:
        """Count the cuts of established connections."""
        return [cut for cut in self.made if cut.after >= _HANDSHAKE]


class _CutError(Exception):
    """The connection ends here."""


class Forwarder:
    """Listens on one address and forwards everything to another.

    :param target: the target, ``host:port``.
    :param cuts: the cuts of the connections; ``None`` leaves them whole.
    """

    def __init__(
        self, target: str, *, cuts: Cuts | None = None, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.accepted = 0
        self._target = target
        self._cuts = cuts
        self._listener = _bound(listen)
        self.host, self.port = self._listener.getsockname()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        # For each connection, whether bytes pass.
        self._open: dict[asyncio.Task[None], asyncio.Event] = {}

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def vanish(self, *, silently: bool = False) -> None:
        """Stop listening; reset the connections, or freeze them for ever."""
        self._on_loop(lambda: self._vanish(silently=silently))

    def appear(self, target: str) -> None:
        """Listen again, and forward connections to this target."""

        def appear() -> None:
            self._target = target
            self._listener = _bound((self.host, self.port))
            self._accept()

        self._on_loop(appear)

    def __enter__(self) -> Self:
        self._thread.start()
        self._on_loop(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    # -- on the loop --------------------------------------------------------------------------

    def _on_loop(self, call: Callable[[], None]) -> None:
        async def calling() -> None:
            call()

        asyncio.run_coroutine_threadsafe(calling(), self._loop).result(_PATIENCE)

    def _accept(self) -> None:
        self._listener.listen(128)
        self._accepting = self._own(self._accept_all(self._listener))

    def _own(self, coroutine: object) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _vanish(self, *, silently: bool) -> None:
        self._accepting.cancel()
        self._listener.close()
        for task, passes in tuple(self._open.items()):
            if silently:
                passes.clear()
            else:
                task.cancel()

    async def _end(self) -> None:
        self._listener.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept_all(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            self.accepted += 1
            passes = asyncio.Event()
            passes.set()
            task = self._own(self._forward(client, passes))
            self._open[task] = passes
            task.add_done_callback(lambda ended: self._open.pop(ended, None))

    async def _forward(self, client: socket.socket, passes: asyncio.Event) -> None:
        host, _, port = self._target.rpartition(":")
        server = socket.socket()
        sockets = (client, server)
        for each in sockets:
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reset = True
        try:
            await self._loop.sock_connect(server, (host, int(port)))
            reset = await self._run(client, server, passes)
        except OSError:
            pass  # one end is gone, so the other ends too
        finally:
            for each in sockets:
                if reset:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.close()

    async def _run(self, client: socket.socket, server: socket.socket, passes: asyncio.Event) -> bool:
        """Forward until both directions have ended, or one is cut; return whether to end with a reset."""
        cut = self._cuts.draw() if self._cuts is not None else None
        pumps = (
            self._own(self._pump(client, server, passes, cut, upstream=True)),
            self._own(self._pump(server, client, passes, cut, upstream=False)),
        )
        try:
            # The first error ends both; an orderly end of one direction leaves the other one open.
            await asyncio.gather(*pumps)
        except _CutError:
            assert cut is not None
            assert self._cuts is not None
            self._cuts.done(cut)
            _cancel(pumps)
            if not cut.reset:
                await self._hang_up(client, server)
            return cut.reset
        finally:
            _cancel(pumps)
        return False

    async def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        passes: asyncio.Event,
        cut: Cut | None,
        *,
        upstream: bool,
    ) -> None:
        while data := await self._read(source, passes):
            if cut is not None:
                keep = self._keep(cut, len(data), upstream=upstream)
                if keep is not None:
                    await self._loop.sock_sendall(sink, data[:keep])
                    raise _CutError
            await self._loop.sock_sendall(sink, data)
        sink.shutdown(socket.SHUT_WR)

    async def _read(self, source: socket.socket, passes: asyncio.Event) -> bytes:
        """Read the next bytes, or the end; neither passes a frozen connection."""
        try:
            return await self._loop.sock_recv(source, _CHUNK)
        finally:
            await passes.wait()

    def _keep(self, cut: Cut, size: int, *, upstream: bool) -> int | None:
        """Return how much of this piece passes, if it is the last one."""
        before = cut.passed
        cut.passed += size
        if upstream is not cut.upstream or cut.passed < cut.after:
            return None
        assert self._cuts is not None
        return cut.after - before if before < cut.after else self._cuts.rng.randrange(size)

    async def _hang_up(self, *sockets: socket.socket) -> None:
        """Send FINs, and wait until both peers have closed."""
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await asyncio.gather(*(self._drain(each) for each in sockets))

    async def _drain(self, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while await self._loop.sock_recv(source, _CHUNK):
                pass


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _bound(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    listener.bind(address)
    return listener
