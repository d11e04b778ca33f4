"""The route to the broker: a proxy on its own thread, which computations of the client do not slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from haclient.testing.peers import Peer
from haclient.testing.proxy import Proxy, proxy
from haclient.testing.threads import LoopInThread, loop_in_thread
from tests.failover.calls.plan import Fault, Step

# The maxima, of which a step draws a part: seconds, bytes.
_DOWN, _HELD, _DELAY, _BYTES = 0.05, 0.05, 0.002, 20_000


class Route:
    """Faults on the bytes between client and broker.  For any thread; methods return before they take
    effect.
    """

    def __init__(self, thread: LoopInThread, proxy: Proxy) -> None:
        self.address = proxy.address
        self._loop = thread._loop
        self._proxy = proxy

    def apply(self, step: Step) -> None:
        """Apply the fault of a step."""
        match step.fault:
            case Fault.CUT:
                self.cut()
            case Fault.CUT_AFTER:
                self._post(self._proxy.cut_after, int(step.amount * _BYTES))
            case Fault.DOWN:
                self._post(self._proxy.refuse)
                self.release(after=step.amount * _DOWN)
            case Fault.HOLD:
                self.hold()
                self.release(after=step.amount * _HELD)
            case Fault.SLOW:
                self._post(self._slow, step.amount * _DELAY)
            case Fault.FAST:
                self._post(self._slow, 0.0)

    def cut(self) -> None:
        self._post(self._proxy.cut)

    def hold(self) -> None:
        self._post(self._proxy.hold)

    def refuse(self) -> None:
        self._post(self._proxy.refuse)

    def release(self, after: float = 0.0) -> None:
        self._post(self._loop.call_later, after, self._proxy.release)

    def heal(self) -> None:
        """End the current fault, and cancel all scheduled ones."""
        self._post(self._slow, 0.0)
        self._post(self._never_cut)
        self.release()

    def _slow(self, seconds: float) -> None:
        self._proxy.delay = seconds

    def _never_cut(self) -> None:
        self._proxy._limit = None

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)


@contextmanager
def route_to(address: str) -> Iterator[Route]:
    """Open a route to the broker at ``host:port``."""
    host, _, port = address.rpartition(":")
    with loop_in_thread("route") as thread, thread.entered(proxy(Peer(host, int(port)))) as made:
        yield Route(thread, made)
