"""proton's ``reconnect=`` as options of ours.

proton takes delays as they are, for every client alike; here they are the ceilings of a jittered
backoff.  A list of delays, and ``max_tries``, say how many rounds over the addresses there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from proton.reactor import Backoff

# Of ``proton._reactor.delay_iter``.
_INITIAL, _FACTOR, _MAX_DELAY = 0.1, 2.0, 10.0
# Of an iterable without end only the start is looked at.
_LOOKED_AT = 64
_LEAST = 0.001


def backoff_options(reconnect: Any, addresses: int) -> dict[str, Any]:
    """The options for a ``reconnect`` argument.

    :param addresses: how many members a round has.
    """
    if reconnect is None or reconnect is True:
        return {}
    if isinstance(reconnect, Backoff):
        given = reconnect.kwargs
        tries = given.get("max_tries")
        return _options(
            given.get("initial", _INITIAL),
            given.get("factor", _FACTOR),
            given.get("max_delay", _MAX_DELAY),
            None if tries is None else tries * addresses,
        )
    return _of_delays(list(islice(_delays(reconnect), _LOOKED_AT)), addresses)


def _delays(reconnect: Any) -> Iterable[float]:
    if hasattr(reconnect, "reset") and hasattr(reconnect, "next"):  # proton's older protocol
        reconnect.reset()
        return iter(reconnect.next, None)
    delays: Iterable[float] = reconnect
    return delays


def _of_delays(delays: list[float], addresses: int) -> dict[str, Any]:
    rounds = None if len(delays) == _LOOKED_AT else max(1, len(delays)) * addresses
    waits = [float(delay) for delay in delays if delay > 0]
    if not waits:
        return _options(_LEAST, 1.0, _LEAST, rounds)
    factor = waits[1] / waits[0] if len(waits) > 1 else 1.0
    return _options(waits[0], factor, max(waits), rounds)


def _options(initial: float, factor: float, longest: float, attempts: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "backoff_base": max(_LEAST, initial),
        "backoff_factor": max(1.0, factor),
        "backoff_max": max(_LEAST, longest),
    }
    if attempts is not None:
        options["max_attempts"] = max(1, attempts)
    return options
