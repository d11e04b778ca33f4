"""Sequences, and the futures and callbacks that wait for their commit.  Used by both stores; no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from broker_stub.store.errors import StoreFailedError


class Commits:
    """Assigns sequences, and reports when they are committed.

    :param refusal: why operations are refused, ``None`` while they are accepted.
    """

    __slots__ = ("_callbacks", "_failure", "_on_failed", "_waiting", "committed", "refusal", "sequence")

    def __init__(self) -> None:
        self.sequence = 0
        self.committed = 0
        self.refusal: StoreFailedError | None = None
        self._failure: StoreFailedError | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._callbacks: list[Callable[[int], None]] = []
        self._on_failed: list[Callable[[StoreFailedError], None]] = []

    def on_committed(self, callback: Callable[[int], None]) -> None:
        """Call for each commit."""
        self._callbacks.append(callback)

    def on_failed(self, callback: Callable[[StoreFailedError], None]) -> None:
        """Call when the store fails."""
        if self._failure is None:
            self._on_failed.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback, self._failure)

    def when_committed(self, sequence: int) -> asyncio.Future[None]:
        """Return a future that is done when a sequence is committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if sequence <= self.committed:
            future.set_result(None)
        elif self._failure is not None:
            future.set_exception(again(self._failure))
        elif sequence > self.sequence:
            raise ValueError(f"sequence {sequence} was not given yet, the last one is {self.sequence}")
        else:
            self._waiting.append((sequence, future))
        return future

    def done(self, sequence: int) -> None:
        """Report everything up to a sequence as committed."""
        self.committed = sequence
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for wanted, future in waiting:
                if wanted > sequence:
                    self._waiting.append((wanted, future))
                elif not future.done():
                    future.set_result(None)
        for callback in self._callbacks:
            callback(sequence)

    def close(self) -> None:
        """Refuse new operations; operations appended before can still be committed."""
        if self.refusal is None:
            self.refusal = StoreFailedError("the store is closed")

    def fail(self, error: StoreFailedError) -> None:
        """Report that nothing more will be committed.  Only the first error counts."""
        if self._failure is not None:
            return
        self.refusal = self._failure = error
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(again(error))
        callbacks, self._on_failed = self._on_failed, []
        for callback in callbacks:
            callback(error)

    def refuse(self) -> NoReturn:
        """Raise the reason for which operations are refused."""
        assert self.refusal is not None
        raise again(self.refusal)


class Committing:
    """The part of ``Store`` that reports commits."""

    _commits: Commits

    @property
    def sequence(self) -> int:
        """See ``Store``."""
        return self._commits.sequence

    @property
    def committed(self) -> int:
        """See ``Store``."""
        return self._commits.committed

    def on_committed(self, callback: Callable[[int], None]) -> None:
        """See ``Store``."""
        self._commits.on_committed(callback)

    def on_failed(self, callback: Callable[[StoreFailedError], None]) -> None:
        """See ``Store``."""
        self._commits.on_failed(callback)

    def when_committed(self, sequence: int) -> asyncio.Future[None]:
        """See ``Store``."""
        return self._commits.when_committed(sequence)


def again(error: StoreFailedError) -> StoreFailedError:
    """Return a copy of an error for one more receiver, because each raise extends an error's traceback."""
    copy = StoreFailedError(*error.args)
    copy.__cause__ = error.__cause__
    return copy
