"""Ends a session on purpose, so that no message is left in doubt.

Rules
-----
* Receivers are held first: they take their credit back, and release the messages that no call has taken.
  An application may keep a delivery for long, and may send meanwhile.
* When no delivery is unsettled, senders are held until everything sent is settled.  Then the session ends.
* After the given time the session ends with what is unsettled, as at a loss.

Sources: AMQP 1.0 part 2, sections 2.6.7 (drain) and 2.6.12 (settling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haclient.core.attach.trials import LinkCore
from haclient.core.sender import SenderCore
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.printable.log import get_logger

logger = get_logger("haclient")

# Seconds between two looks at the links.
_PAUSE = 0.01


async def quiesce(links: Callable[[], tuple[LinkCore, ...]], seconds: float, name: str) -> None:
    """Hold the links until nothing is unsettled, or this time has passed.

    :param links: returns the links of the connection; new ones are held, too.
    :param name: name of the connection, for the log.
    """
    now = asyncio.get_running_loop().time
    end = now() + seconds
    while not _hold(links()):
        if now() >= end:
            text = (
                "%s: deliveries are unsettled after %.0f s; they come again after the log-in with a new token"
            )
            logger.warning(text, name, seconds)
            return
        await asyncio.sleep(_PAUSE)


def _hold(links: tuple[LinkCore, ...]) -> bool:
    """Hold the receivers, and if these are quiet the senders; return whether nothing is unsettled."""
    received = [link.hold() for link in links if not isinstance(link, SenderCore)]
    if not all(received):
        return False
    sent = [link.hold() for link in links if isinstance(link, SenderCore)]
    return all(sent)


async def end(engine: Engine, session_end: asyncio.Future[CloseReason], seconds: float) -> None:
    """End a session by a Close, and wait for the peer's answer at most these seconds.

    Handlers of proton would take the Close for the application's, so they see the end first.
    """
    if engine.event_handler is None:
        engine.close()
        await asyncio.wait([session_end], timeout=seconds)
    engine.leave()
