"""Peers with real sockets: every passive or broken behaviour of a member, by name.

    async with BEHAVIOURS["redirect_after_open"](primary) as passive:
        ...aio.connect(url(passive, primary))...

They live on the event loop that enters them; see ``threads`` for tests that are not coroutines.

``listening``  sockets, and the server side of a connection
``passive``    the behaviours that speak AMQP
``deaf``       the behaviours below AMQP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from haclient.testing.peers import deaf, passive
from haclient.testing.peers.listening import Peer, url

__all__ = ["BEHAVIOURS", "NEED_A_PRIMARY", "Behaviour", "Peer", "url"]

# Starts a peer; some behaviours redirect to the primary.
Behaviour = Callable[[Peer], AbstractAsyncContextManager[Peer]]

_REDIRECTS: Mapping[str, Behaviour] = {
    "redirect_in_open": passive.redirecting(opens=False, with_port=True),
    "redirect_in_open_without_port": passive.redirecting(opens=False, with_port=False),
    "redirect_after_open": passive.redirecting(opens=True, with_port=True),
    "redirect_after_open_without_port": passive.redirecting(opens=True, with_port=False),
    "redirect_after_begin": passive.redirecting(opens=True, begins=True, with_port=True),
    "redirect_after_begin_without_port": passive.redirecting(opens=True, begins=True, with_port=False),
    "redirect_chain": passive.redirect_chain,
}
NEED_A_PRIMARY = frozenset(_REDIRECTS)

BEHAVIOURS: Mapping[str, Behaviour] = {
    "refused": deaf.refused,
    "unreachable": deaf.unreachable,
    "unresolvable": deaf.unresolvable,
    "syn_drop": deaf.syn_drop,
    "silence": deaf.silence,
    "stopped_process": deaf.stopped_process,
    "garbage": deaf.garbage,
    "accept_and_drop": deaf.accept_and_drop,
    "eof_after_sasl": passive.eof_after_sasl,
    "eof_after_open": passive.eof_after_open,
    "close_forced": passive.open_then_close("amqp:connection:forced"),
    "close_internal_error": passive.open_then_close("amqp:internal-error"),
    "close_resource_limit_exceeded": passive.open_then_close("amqp:resource-limit-exceeded"),
    "close_not_found": passive.open_then_close("amqp:not-found"),
    "close_without_condition": passive.open_then_close(None),
    **_REDIRECTS,
    "redirect_loop": passive.redirect_loop,
    "open_and_drop": passive.open_and_drop,
}
