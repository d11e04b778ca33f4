"""Standard input and output for an event loop: a slow pipe must not delay heartbeats.

Reading and writing block, each on a daemon thread.  No single method can wait for both files and pipes, and
a thread blocked for ever must not keep the process alive.  The threads use descriptors directly,
because such a thread would hold a lock of Python's own streams at exit.
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
# Most chunks waiting to be used: enough for a thread to stay ahead.
_AHEAD = 4


def descriptor_of(stream: TextIO | None, name: str) -> int:
    """Return the descriptor of a standard stream, unless the stream was closed.

    The number of a closed one may belong to another file.

    :raises UnusableError: if it was closed.
    """
    if stream is None:
        raise UnusableError(f"standard {name} is closed")
    return stream.fileno()


class LineInput:
    """The lines of a descriptor, in batches; text after the last newline is a line too."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue(_AHEAD)
        threading.Thread(target=self._read, name="haclient input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yield batches until the input ends.

        :raises UnusableError: if it cannot be read.
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
            return  # the loop is closed, and reads no more

    def _put(self, batch: list[bytes] | OSError | None) -> None:
        putting = self._batches.put(batch)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except RuntimeError:
            putting.close()
            raise


class Output:
    """Writes to a descriptor on a thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="haclient output", daemon=True).start()

    def write(self, data: bytes) -> asyncio.Future[None]:
        """Write ``data``; the future is done when all of it is written.

        It fails with ``BrokenPipeError`` if the pipe has no reader, else with ``UnusableError``.
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
                return  # the loop is closed, and waits no more

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                select.select([], [self._descriptor], [])


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
