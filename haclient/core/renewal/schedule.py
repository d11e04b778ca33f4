"""Renews the token of a live session before it expires: by ``$cbs``, or by a planned reconnect.

Rules
-----
* The renewal begins at a random moment between 60 and 80 % of the time that the token has left.  So a fleet
  with one token does not come at once, and enough time is left to try again.
* The application's callable is asked first.  While it returns the same token, raises, or does not answer for
  ``attempt_timeout``, it is asked again after a part of the time that is then left.
* If the broker takes tokens by ``$cbs``, the client puts the new one there.  If that is refused, the callable
  is asked again.
* Otherwise the connection waits until nothing is unsettled (``quiesce``), and reconnects.  It waits no longer
  than ``attempt_timeout``, the pause of a failover to a dead host, and than three quarters of the time left.
  Then it reconnects with the deliveries that are unsettled.
* A token that has expired by this machine's clock is not renewed.  The clock may be wrong, and the broker
  decides: if it ends the connection, the client asks for a token and connects again.

Source: RFC 6749, section 5.1 (``expires_in``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import ConnectParams
from haclient.core.cluster import Shared
from haclient.printable.log import get_logger

logger = get_logger("haclient")

_EARLIEST, _LATEST = 0.6, 0.8
_SHARE_FOR_QUIET = 0.75
# Seconds: a token that lives no longer than this is asked for no more often.
_LEAST_WAIT = 1.0


class Renewal:
    """The renewal of the tokens of one connection.

    :param renew: logs in with these parameters within this many seconds; returns why it was refused, if it
        was.
    :param name: name of the connection, for the log.
    """

    __slots__ = ("_name", "_patience", "_renew", "_shared", "_task")

    def __init__(
        self, shared: Shared, renew: Callable[[ConnectParams, float], Awaitable[str]], name: str
    ) -> None:
        self._shared, self._renew, self._name = shared, renew, name
        self._patience = shared.options.attempt_timeout
        self._task: asyncio.Task[None] | None = None

    def start(self, endpoint: Endpoint, params: ConnectParams) -> None:
        """Watch the token of a new session, if a callable supplied it and it says when it expires."""
        self.stop()
        if params.fresh and params.expires_at is not None:
            run = self._run(endpoint, params.settings.password, params.expires_at)
            self._task = asyncio.create_task(run, name=f"{self._name}: renewal of its token")

    def stop(self) -> None:
        """Stop: the session has ended."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _run(self, endpoint: Endpoint, token: str | None, expires_at: float | None) -> None:
        uniform = self._shared.rng.uniform
        while expires_at is not None and (left := expires_at - time.time()) > 0:
            await asyncio.sleep(max(_LEAST_WAIT, left * uniform(_EARLIEST, _LATEST)))
            found = await self._ask(endpoint)
            if found is None or (new := found.settings.password or "") == token:
                continue
            seconds = min(self._patience, max(0.0, expires_at - time.time()) * _SHARE_FOR_QUIET)
            if refused := await self._renew(found, seconds):
                logger.warning("%s: its new token was refused: %s", self._name, refused)
            else:
                token, expires_at = new, found.expires_at
        if expires_at is not None:
            logger.warning("%s: its token has expired by the clock here", self._name)

    async def _ask(self, endpoint: Endpoint) -> ConnectParams | None:
        """Return what the application's callable supplies; ``None`` if that is no token."""
        asked = asyncio.create_task(_await(self._shared.params_provider(endpoint)))
        try:
            await asyncio.wait([asked], timeout=self._patience)
            found = asked.result() if asked.done() and not asked.cancelled() else None
        finally:
            asked.cancel()
        if found is not None and found.error is None:
            return found if found.refusal is None else None
        problem = "no answer" if found is None else type(found.error).__name__
        text = "%s: the application's callable supplied no token (%s); the client calls it again"
        logger.warning(text, self._name, problem)
        return None


async def _await(params: Awaitable[ConnectParams]) -> ConnectParams:
    return await params
