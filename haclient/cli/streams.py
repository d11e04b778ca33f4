"""Standard input and output beside an event loop: a slow pipe must not hold up heartbeats.

Reading and writing block, on a daemon thread each: neither files nor pipes that somebody forgot can be
waited for in one way, and a thread that waits for ever must not keep the process.  The descriptors are
used directly, for Python's own streams have locks that such a thread would hold at the end.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import select
import threading
from collections.abc import AsyncIterator
from typing import TextIO

from haclient.cli.options import UnusableError

_CHUNK = 65536
# Chunks that wait to be used: enough for a thread to stay ahead.
_AHEAD = 4


def descriptor_of(stream: TextIO | None, name: str) -> int:
    """The descriptor of a standard stream, which may have been closed: its number is another file's then.

    :raises UnusableError: when it was.
    """
    if stream is None:
        raise UnusableError(f"standard {name} is closed")
    return stream.fileno()


class LineInput:
    """The lines of a descriptor, in batches; an end without a newline is a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue(_AHEAD)
        threading.Thread(target=self._read, name="haclient input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Batches until the input ends.

        :raises UnusableError: when it cannot be read.
        """
        while (batch := await self._batches.get()) is not None:
            if isinstance(batch, OSError):
                raise UnusableError(f"standard input: {batch.strerror}")
            yield batch

    def _read(self) -> None:
        parts: list[bytes] = []
        try:
            while data := os.read(self._descriptor, _CHUNK):
                whole, newline, rest = data.rpartition(b"\n")
                if newline:
                    self._put(b"".join((*parts, whole)).split(b"\n"))
                    parts = []
                parts.append(rest)
            last = b"".join(parts)
            self._put([last] if last else None)
            self._put(None)
        except OSError as error:
            self._put(error)
        except (RuntimeError, concurrent.futures.CancelledError):
            return  # the loop is closed: nobody reads any more

    def _put(self, batch: list[bytes] | OSError | None) -> None:
        putting = self._batches.put(batch)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except RuntimeError:
            putting.close()
            raise


class Output:
    """A descriptor to write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="haclient output", daemon=True).start()

    def write(self, data: bytes) -> asyncio.Future[None]:
        """Done when all of it is written.

        ``BrokenPipeError`` when nobody reads any more, ``UnusableError`` when it fails for another reason.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._wanted.put((data, future))
        return future

    def _write(self) -> None:
        while True:
            data, future = self._wanted.get()
            error: Exception | None = None
            try:
                self._write_all(data)
            except BrokenPipeError as failure:
                error = failure
            except OSError as failure:
                error = UnusableError(f"standard output: {failure.strerror}")
            try:
                self._loop.call_soon_threadsafe(_settle, future, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever shares the descriptor made it so
                select.select([], [self._descriptor], [])


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
