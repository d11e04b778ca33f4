"""A peer that answers every TCP connection with bytes chosen by the test."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from haclient.testing.peers.listening import Peer, listening


class _Answering(asyncio.Protocol):
    """Answers the first bytes; with ``first`` it sends without waiting for them."""

    def __init__(self, answer: bytes, then: Literal["close", "stall"], *, first: bool) -> None:
        self._answer, self._then, self._first = answer, then, first

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._first:
            self._reply()

    def data_received(self, data: bytes) -> None:
        if not self._first:
            self._first = True
            self._reply()

    def _reply(self) -> None:
        self._transport.write(self._answer)
        if self._then == "close":
            self._transport.close()


def answering(
    answer: bytes, then: Literal["close", "stall"] = "close", *, first: bool = False
) -> AbstractAsyncContextManager[Peer]:
    """Return a peer that sends ``answer``, and then closes the socket or stays silent.

    :param first: send without waiting for the client.
    """
    return listening(lambda _: _Answering(answer, then, first=first))
