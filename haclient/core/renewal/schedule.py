"""Renews the token of a live session before it expires: by ``$cbs``, or by a planned reconnect.

Rules
-----
* The renewal begins at a random moment between 60 and 80 % of the time that the token has left.  So a fleet
  with one token does not come at once, and enough time is left to try again.
* The application's callable is asked first.  While it returns the same token, or raises, it is asked again
  after a part of the time that is then left.
* If the broker takes tokens by ``$cbs``, the client puts the new one there.
* Otherwise the connection waits until nothing is unsettled (``LinkSet.quiesce``), and reconnects.  It
  waits for three quarters of the time left at most: then it reconnects with what is unsettled.
* A token that has expired by this machine's clock is not renewed.  The clock may be wrong, and the broker
  decides: if it ends the connection, the client asks for a token and connects again.

Source: RFC 6749, section 5.1 (``expires_in``).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import ConnectParams, ParamsProvider
from haclient.printable.log import get_logger

logger = get_logger("haclient")

_EARLIEST, _LATEST = 0.6, 0.8
_SHARE_FOR_QUIET = 0.75
# Seconds: a token that lives no longer than this is asked for no more often.
_LEAST_WAIT = 1.0


class Renewal:
    """The renewal of the tokens of one connection.

    :param params_provider: asks the application's callable for the current token.
    :param renew: logs in with a new token within this many seconds.
    :param name: name of the connection, for the log.
    """

    __slots__ = ("_loop", "_name", "_params_provider", "_renew", "_rng", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        params_provider: ParamsProvider,
        renew: Callable[[ConnectParams, float], Awaitable[None]],
        name: str,
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._params_provider = params_provider
        self._renew = renew
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self, endpoint: Endpoint, params: ConnectParams) -> None:
        """Watch the token of a new session, if a callable supplied it and it says when it expires."""
        self.stop()
        if params.fresh and params.expires_at is not None:
            run = self._run(endpoint, params.settings.password, params.expires_at)
            self._task = self._loop.create_task(run, name=f"{self._name}: renewal of its token")

    def stop(self) -> None:
        """Stop: the session has ended."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _run(self, endpoint: Endpoint, token: str | None, expires_at: float) -> None:
        while (left := expires_at - time.time()) > 0:
            await asyncio.sleep(max(_LEAST_WAIT, left * self._rng.uniform(_EARLIEST, _LATEST)))
            found = await self._params_provider(endpoint)
            if self._is_another(found, token):
                await self._renew(found, max(0.0, expires_at - time.time()) * _SHARE_FOR_QUIET)
                return
        logger.warning("%s: its token has expired by the clock here, and there is no other one", self._name)

    def _is_another(self, found: ConnectParams, token: str | None) -> bool:
        if found.error is not None:
            text = (
                "%s: the token was not renewed: %s in the application's callable; the client calls it again"
            )
            logger.warning(text, self._name, type(found.error).__name__)
        return found.error is None and found.refusal is None and found.settings.password != token
