"""The passive behaviours that speak AMQP: answers of members that are not the primary.

Each is a script for ``Passive``: its actions at the client's Open, and at its Begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import proton

from haclient.core.failures import ESTABLISHMENT_FAILED, REDIRECT
from haclient.engine.links import Link
from haclient.engine.owner import CloseReason
from haclient.testing.peers.listening import Peer, PeerEngine, bound, listening, settings

# Seconds: enough for the client to read an Open or Begin separately from the Close that follows.
A_MOMENT = 0.02
Step = Callable[[PeerEngine], None]


@dataclass(slots=True)
class Passive:
    """The owner of one connection: follows its script, and does nothing else."""

    on_open: Step
    on_begin: Step | None = None

    def opened(self, engine: Any) -> None:
        """Run the script for the client's Open."""
        self.on_open(engine)

    def session_opened(self, engine: Any, session: proton.Session) -> None:
        """Run the script for the client's Begin, if any."""
        if self.on_begin is not None:
            session.open()
            engine.wake()
            self.on_begin(engine)

    def link_requested(self, engine: Any, link: Link) -> None:
        """Do nothing: the script ends before."""

    def peer_closed(self, engine: Any, condition: proton.Condition | None) -> None:
        """Do nothing."""

    def writable_again(self, engine: Any) -> None:
        """Do nothing."""

    def ended(self, engine: Any, reason: CloseReason) -> None:
        """Do nothing."""


def speaking(on_open: Step, on_begin: Step | None = None, **how: Any) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that answers connections by this script."""
    place = {key: how.pop(key) for key in ("host", "port") if key in how}
    return listening(lambda _: PeerEngine(Passive(on_open, on_begin), settings(), **how), **place)


def _open(engine: PeerEngine) -> None:
    engine.open()


def _later(step: Step) -> Step:
    def plan(engine: PeerEngine) -> None:
        asyncio.get_running_loop().call_later(A_MOMENT, step, engine)

    return plan


def _both(*steps: Step) -> Step:
    def plan(engine: PeerEngine) -> None:
        for step in steps:
            step(engine)

    return plan


def _close(condition: proton.Condition | None) -> Step:
    return lambda engine: engine.close(condition)


def eof_after_sasl(_primary: Peer) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that ends the stream when SASL is done."""
    return speaking(_open, eof_after_sasl=True)


def eof_after_open(_primary: Peer) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that sends Open, and ends the stream."""
    return speaking(_both(_open, PeerEngine.finish))


def open_then_close(name: str | None) -> Callable[[Peer], AbstractAsyncContextManager[Peer]]:
    """Return a peer that sends Open and Close at once, and never closes the socket."""
    condition = proton.Condition(name, "this member serves nobody now") if name else None
    return lambda _primary: speaking(_both(_open, _close(condition)), hold=True)


def open_and_drop(_primary: Peer | None = None) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that sends Open, and resets the connection."""
    return speaking(_open, PeerEngine.drop)


def redirection(target: Peer, *, with_port: bool = True) -> proton.Condition:
    """Return the condition of a Close that redirects to a target."""
    info: dict[Any, Any] = {proton.symbol("network-host"): target.host}
    if with_port:
        info[proton.symbol("port")] = proton.uint(target.port)
    return proton.Condition(REDIRECT, f"the primary is {target.host}", info)


def _refuse(engine: PeerEngine) -> None:
    engine.open(properties={ESTABLISHMENT_FAILED: True})


def redirecting(
    *, opens: bool, begins: bool = False, with_port: bool
) -> Callable[[Peer], AbstractAsyncContextManager[Peer]]:
    """Return a member that redirects to the primary.

    :param opens: first send a valid Open, and Close a moment later; otherwise the Open reports a failure.
    :param begins: answer the Begin as well.
    :param with_port: name the target's port; otherwise the target has the redirecting member's port.
    """

    def start(primary: Peer) -> AbstractAsyncContextManager[Peer]:
        close = _close(redirection(primary, with_port=with_port))
        where: dict[str, Any] = {} if with_port else {"port": primary.port}
        if begins:
            return speaking(_open, _later(close), hold=True, **where)
        return speaking(_both(_open, _later(close)) if opens else _both(_refuse, close), hold=True, **where)

    return start


def _redirect_to(target: Peer) -> Step:
    return _both(_refuse, _close(redirection(target)))


@asynccontextmanager
async def redirect_loop(_primary: Peer) -> AsyncIterator[Peer]:
    """Start two members, each of which redirects to the other."""
    with bound() as reserved:
        second = Peer(*reserved.getsockname())
    async with (
        speaking(_redirect_to(second), hold=True) as first,
        speaking(_redirect_to(first), hold=True, host=second.host, port=second.port),
    ):
        yield first


@asynccontextmanager
async def redirect_chain(primary: Peer) -> AsyncIterator[Peer]:
    """Start eight members that redirect in a chain to the primary: more than a client follows."""
    async with AsyncExitStack() as stack:
        target = primary
        for _ in range(8):
            target = await stack.enter_async_context(speaking(_redirect_to(target), hold=True))
        yield target
