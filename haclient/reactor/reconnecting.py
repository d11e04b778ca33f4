"""Reads proton's ``reconnect=``: delays that the application chose, used unchanged.

Without one, ``connect`` uses the jittered backoff of a cluster URL's options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

from proton.reactor import Backoff

from haclient.retry.backoff import FixedDelays

# An iterable is read when the application connects; a longer one may be infinite.
_READ_AHEAD = 1000
# Seconds: the least of a delay that repeats for ever, so that it cannot keep the loop busy.
_LEAST = 0.001


def fixed_delays(reconnect: Any) -> FixedDelays | None:
    """Return the delays of a ``reconnect`` argument, and the number of rounds that it allows.

    :raises TypeError, ValueError: when proton does not accept such an argument, or a delay is not a number.
    """
    if reconnect is None or reconnect is True:
        return None
    delays, endless = _read(reconnect)
    tries = reconnect.kwargs.get("max_tries") if type(reconnect) is Backoff else None
    if tries is not None and delays:
        return FixedDelays(delays, rounds=tries)
    if endless:
        return FixedDelays((*delays[:-1], max(_LEAST, delays[-1])))
    return FixedDelays(delays or (0.0,), rounds=max(1, len(delays)))


def _read(reconnect: Any) -> tuple[tuple[float, ...], bool]:
    """Return the delays, and whether there are more than were read."""
    most = None if isinstance(reconnect, Sized) else _READ_AHEAD
    iterator = iter(_iterate(reconnect))
    delays = tuple(float(delay) for delay in islice(iterator, most))
    if not all(map(math.isfinite, delays)):
        raise ValueError("a delay of reconnect= is not finite")
    endless = most is not None and next(iterator, None) is not None
    return tuple(max(0.0, delay) for delay in delays), endless


def _iterate(reconnect: Any) -> Iterable[float]:
    if hasattr(reconnect, "reset") and hasattr(reconnect, "next"):  # proton's older protocol
        reconnect.reset()
        return iter(reconnect.next, None)
    if type(reconnect) is Backoff:  # the first connection would use up its own iterator
        return Backoff(**reconnect.kwargs)
    delays: Iterable[float] = reconnect
    return delays
