"""Heartbeats of one connection: when to send one, and how long the peer has been silent.

proton decides when to send.  It could check the peer's silence too, but it counts from the moment of the
call, one or two time-outs after the last bytes.  So proton is asked only about sending, and this module
counts the silence from the last bytes read.

Rules
-----
* A peer is lost when it was silent for the idle time-out, and one further read of the socket found nothing. A
  process that was suspended finds there the bytes that the peer sent meanwhile.
* Heartbeats are at least ``LEAST_IDLE_TIMEOUT / 2`` apart, even if the peer asks for more: at 1 ms ten peers
  would keep most of a core busy.  A client refuses such a peer (``refuse_idle_timeout``), and so does a
  member, whose own limit is an option.
* The Open announces half of the time-out that counts here, as the specification advises.  From
  ``LEAST_ANNOUNCED`` on the announced value is never below that: RabbitMQ 4 silently refuses an Open that
  announces less.  RabbitMQ sends at half of the announced time, so a time-out of 1 s is met as well.
* A shorter time-out is for peers that accept it: with a longer announcement they would send too rarely.
* ``expire`` ends proton's transport as proton does, so that programs see the condition that they know.

Source: AMQP 1.0 part 2, section 2.4.5 (idle time-out).
"""

from __future__ import annotations

from typing import Any

import proton
from cproton_ffi import lib

LEAST_IDLE_TIMEOUT = 0.1
"""Seconds.  Such a peer gets twenty empty frames a second, because they are sent at half of the time."""
LEAST_ANNOUNCED = 1.0
"""Seconds."""
_INVALID_FIELD = "amqp:invalid-field"
# The name of proton's own condition; the text is ours.
_CONDITION = "amqp:resource-limit-exceeded"
# Seconds: enough for the event loop to poll its sockets once; some loops run timers before that.
_ONE_READ = 0.02
# Returned in place of a time.
LOST = -1.0


def refuse_idle_timeout(asked: float, least: float = LEAST_IDLE_TIMEOUT) -> proton.Condition | None:
    """Return the condition for a peer that asks for heartbeats faster than ``least``, or ``None``.

    AMQP 1.0 part 2, section 2.4.5: a peer that cannot support a time-out closes, and gives the reason.

    :param asked: seconds, 0 for no time-out.
    """
    if not 0 < asked < least:
        return None
    why = f"idle-time-out is {asked * 1000:.0f} ms, and the least is {least * 1000:.0f} ms"
    return proton.Condition(_INVALID_FIELD, why, {proton.symbol("invalid-field"): "idle-time-out"})


def idle_timeout(heartbeat: float) -> float:
    """Return the time-out to set in proton, which announces half of it.

    :param heartbeat: seconds of silence, 0 for no time-out.
    """
    return heartbeat if heartbeat < LEAST_ANNOUNCED else max(heartbeat, 2 * LEAST_ANNOUNCED)


class Heartbeat:
    """Counts the silence of the peer, in the event loop's time.

    :param transport: proton's pointer.
    :param heartbeat: seconds of silence after which the peer is lost, 0 for no limit.
    :ivar last_read: when the last bytes were read.
    """

    __slots__ = ("_silence", "_suspected", "_transport", "last_read")

    def __init__(self, transport: Any, heartbeat: float) -> None:
        self._transport = transport
        self._silence = heartbeat
        self.last_read = 0.0
        # The value of ``last_read`` when the time-out first expired.
        self._suspected = -1.0

    def tick(self, now: float) -> float | None:
        """Queue a heartbeat if one is due.

        :returns: the time of the next tick; ``None`` without heartbeats; ``LOST`` if the peer was silent too
            long.
        """
        transport, now_ms = self._transport, int(now * 1000)
        idle_ms: int = lib.pn_transport_get_idle_timeout(transport)
        least = now + LEAST_IDLE_TIMEOUT / 2
        if not idle_ms:
            send_ms: int = lib.pn_transport_tick(transport, now_ms)
            return max(send_ms / 1000, least) if send_ms > 0 else None
        next_tick = self.last_read + self._silence
        if next_tick <= now:
            if self._suspected == self.last_read:  # and no bytes arrived since
                return LOST
            self._suspected = self.last_read
            next_tick = now + _ONE_READ
        lib.pn_transport_set_idle_timeout(transport, 0)
        send_ms = lib.pn_transport_tick(transport, now_ms)
        lib.pn_transport_set_idle_timeout(transport, idle_ms)
        return min(next_tick, max(send_ms / 1000, least)) if send_ms > 0 else next_tick

    def expire(self, now: float) -> proton.Condition:
        """End proton's transport with its own condition, and return the condition to report."""
        idle_ms = lib.pn_transport_get_idle_timeout(self._transport)
        now_ms = int(now * 1000)
        lib.pn_transport_tick(self._transport, now_ms)  # proton begins to count
        lib.pn_transport_tick(self._transport, now_ms + idle_ms)
        return proton.Condition(_CONDITION, f"silent for {self._silence:g} s")
