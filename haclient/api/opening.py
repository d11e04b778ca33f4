"""Results of the asyncio API's calls that open something: to be awaited, or entered."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T", bound=AbstractAsyncContextManager[Any, Any])


class Opening(Coroutine[Any, None, T]):
    """A connection, sender or receiver to be opened: ``await`` it, or use it with ``async with``.

    It does nothing before that.  It is a full coroutine, so ``asyncio.create_task`` takes it.

    :param start: makes the coroutine that opens the object, and closes it again if that fails.
    :param name: the call that returned it, for errors.
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]], name: str) -> None:
        self._start = start
        self._name = name
        self._coroutine: Coroutine[Any, Any, T] | None = None
        self._opened: T | None = None

    # -- a coroutine --------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, T]:
        if self._coroutine is not None:
            raise RuntimeError(f"{self._name}() is awaited already: call it once more for another one")
        return self._begin().__await__()

    def send(self, value: None) -> Any:
        """Run the coroutine until it waits; see ``collections.abc.Coroutine``."""
        if self._coroutine is None and value is not None:
            raise AttributeError(self._not_opened("send"))
        return (self._coroutine or self._begin()).send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error at the point where the coroutine waits; see ``collections.abc.Coroutine``."""
        return (self._coroutine or self._begin()).throw(*error)

    def close(self) -> None:
        """End the coroutine with ``GeneratorExit``."""
        (self._coroutine or self._begin()).close()

    # -- a context manager --------------------------------------------------------------------

    async def __aenter__(self) -> T:
        self._opened = opened = await self
        await opened.__aenter__()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    # -- misuse -------------------------------------------------------------------------------

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise AttributeError(self._not_opened(attribute))

    def __enter__(self) -> NoReturn:
        raise TypeError(f"{self._name}() of the asyncio API is for 'async with', or to be awaited")

    def __exit__(self, *_: object) -> None:
        """Exist, so that Python calls ``__enter__``, which raises the error."""

    def __aiter__(self) -> NoReturn:
        raise TypeError(f"{self._name}() is not opened yet: await it, or use it with 'async with'")

    __iter__ = __aiter__

    def __repr__(self) -> str:
        return f"<{self._name}() to be awaited>"

    def __del__(self) -> None:
        if self._coroutine is None:
            warnings.warn(f"{self._name}() was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def _not_opened(self, attribute: str) -> str:
        return (
            f"{self._name}() has no {attribute!r} before it is opened: await it, or use it with 'async with'"
        )

    def _begin(self) -> Coroutine[Any, Any, T]:
        self._coroutine = self._start()
        return self._coroutine
