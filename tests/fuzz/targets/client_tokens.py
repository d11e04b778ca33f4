"""A client with a token that a peer takes by SASL or ``$cbs``: as ``client``, and no error shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

from haclient import Token, aio
from haclient.core.attach import claims
from haclient.errors import HaclientError
from tests.fuzz.target import Defect
from tests.fuzz.targets.client import Client
from tests.fuzz.targets.server_tokens import NEWER, VALID

_URL = "amqp://127.0.0.1,127.0.0.2/?heartbeat=2&max_attempts=4&attempt_timeout=3"
LIFE = 2.0
"""Seconds of the first token: it is renewed after 1.2 to 1.6 s."""


class ClientWithToken(Client):
    name = "client_tokens"

    async def _program(self) -> None:
        await program(_URL)

    def planted(self) -> AbstractContextManager[object]:
        """A put that is refused raises an error in the client."""
        original = claims.Claims._answer

        def wrong(puts: claims.Claims, address: str, refused: str) -> None:
            if refused:
                raise KeyError(address)
            original(puts, address, refused)

        return mock.patch.object(claims.Claims, "_answer", wrong)


async def program(url: str, renewing: Callable[[], None] = lambda: None) -> None:
    """The client's program; the seeds record it.

    :param renewing: called before it waits for the renewal.
    """
    supplied = iter((Token(VALID, time.time() + LIFE),))

    async def supply() -> Token:
        return next(supplied, Token(NEWER, time.time() + 3600))

    connection = await _checked(aio.connect(url, credentials=supply))
    if connection is None:
        return
    async with connection:
        sender = await _checked(connection.create_sender("orders", timeout=5))
        await _checked(connection.create_receiver("topics", timeout=5))
        renewing()
        await asyncio.sleep(LIFE)
        if sender is not None:
            await _checked(sender.send("one", timeout=5))


async def _checked(call: object) -> object:
    try:
        return await call  # type: ignore[misc]
    except TimeoutError:
        return None
    except HaclientError as error:
        if VALID in str(error) or NEWER in str(error):
            raise Defect(f"an error shows the token: {error}") from None
        return None


TARGET = ClientWithToken
