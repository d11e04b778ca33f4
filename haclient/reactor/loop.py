"""proton's reactor on an event loop of asyncio: its events, life cycle and end.

Theory of operation
-------------------
Handlers, links and configuration are inherited from proton.  Sockets, time and events are replaced.
Connections are ``endpoints.binding.Binding``s, dialled by ``connectors``.

Events from sockets go to the handlers at once.  Local events wait in a queue that ``_pump`` empties: a timer,
an application's event, an endpoint that is opened while there is no connection.

``run()`` owns a loop and ends, as proton's does, when nothing is left that could produce an event.
``run_async()`` does the same inside a running loop.

Rules
-----
* An error that a handler raises ends ``run()``, which raises it.
* While ``held`` is set no event reaches a handler, but sockets and heartbeats continue.  So
  ``haclient.utils`` keeps a connection alive while the application computes, and calls handlers while the
  loop is stopped (``background_loop``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import proton
from proton import Event as ProtonEvent
from proton import EventType
from proton import reactor as proton_reactor
from proton._reactor import Reactor as ProtonReactor
from proton._reactor import SSLConfig

from haclient.engine.codec import Encoder
from haclient.printable.log import get_logger
from haclient.reactor.endpoints.bound import Bound
from haclient.reactor.kept import Kept
from haclient.reactor.proton_events import Event
from haclient.reactor.selectables import SELECTABLE_EVENTS, Selectables
from haclient.reactor.ssl_domain import Domains

get_logger("proton")  # its handlers log the texts of a peer's errors
# Iterations of the loop for a timer whose callback sends something: the timer, the flush, the socket.
_TURNS = 3


class Reactor(proton_reactor.Container):
    """The event-handling part of ``container.Container``."""

    def __init__(self, *handlers: Any, **kwargs: Any) -> None:
        # Skip the container's own: it loads the system's certificates, twice, for TLS that is seldom used.
        ProtonReactor.__init__(self, *handlers, **kwargs)
        self._global_handler: Any = kwargs.get("global_handler")
        self._ssl: SSLConfig | None = None
        self.trigger = None
        self.container_id = str(kwargs.get("container_id") or uuid.uuid4())
        self.allow_insecure_mechs = True
        self.allowed_mechs: Any = None
        self.sasl_enabled = True
        self.user: Any = None
        self.password: Any = None
        self.encoder = Encoder()
        self.connections_made = 0
        """Connections with failover so far: their numbers in logs, in telemetry and for busy primaries."""
        self.held = False
        self.pending = False
        """Set while an event is pending for a handler."""
        self.stops = False
        """Set to stop the loop when an event becomes pending."""
        self.begun = False
        self.background_loop: Any = None
        """Runs the loop between two calls of ``haclient.utils``."""
        self.error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop = False
        self._ended: asyncio.Future[None] | None = None
        self._over = False
        self._shut = False
        self._watch: Callable[[], object] | None = None
        self._dispatched = 0
        # Ordered sets: objects that keep the container running, and bindings with pending local events.
        self._alive: dict[Any, None] = {}
        self._dirty: dict[Bound, None] = {}
        self._queue: deque[Any] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump_handle: asyncio.Handle | None = None
        self._selectables_watched = Selectables(self)

    @property
    def global_handler(self) -> Any:
        """Return the handler of all events, called after an event's own; made on first use.

        Unlike proton's, it does not serve sockets.
        """
        if self._global_handler is None:
            self._global_handler = proton.Handler()
        return self._global_handler

    @global_handler.setter
    def global_handler(self, handler: Any) -> None:
        self._global_handler = handler

    @property
    def ssl(self) -> SSLConfig:
        """Return the default TLS of connections and listeners, made on first use."""
        if self._ssl is None:
            self._ssl = Domains()
        return self._ssl

    @ssl.setter
    def ssl(self, config: SSLConfig) -> None:
        self._ssl = config

    # -- the loop -----------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop if there is one, or a loop of the container's own."""
        if self._loop is None:
            self._own_loop = not _is_running()
            self._loop = asyncio.new_event_loop() if self._own_loop else asyncio.get_running_loop()
        return self._loop

    def begin_alone(self) -> None:
        """Use a loop of the container's own, for blocking calls, even inside a running loop."""
        if self._loop is None:
            self._loop, self._own_loop = asyncio.new_event_loop(), True
        self.held = True

    def start(self) -> None:
        """Start, and dispatch the handlers' first event."""
        self._over = self._shut = False
        self.begun = True
        self.push_event(self, ProtonEvent.REACTOR_INIT)

    @property
    def over(self) -> bool:
        """Return whether nothing is left that could produce an event."""
        return self._over

    def run(self) -> None:
        """Run until nothing is left to do, ``stop`` is called, or a handler raises."""
        if _is_running():
            raise RuntimeError("an event loop runs here already: await run_async() instead of run()")
        self.start()
        try:
            self.run_until(_never, None)
        finally:
            self.shut_down()
        self.raise_error()

    async def run_async(self) -> None:
        """Run inside a running loop.  If cancelled, close every connection."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            raise RuntimeError("this container began on another event loop")
        self._ended = loop.create_future()
        self.start()
        try:
            await self._ended
        finally:
            self._close_all()
            await self._end_tasks()
        self.raise_error()

    def stop(self) -> None:
        """End ``run`` once all earlier events are dispatched."""
        self._stop = True
        self._pump_soon()

    def process(self) -> bool:
        """Wait at most ``timeout`` for an event; return ``False`` when none can follow."""
        before = self._dispatched
        self.run_until(lambda: self._dispatched != before, self._timeout)
        return not self._over

    def run_until(self, condition: Callable[[], object], timeout: float | None) -> bool:
        """Run until a condition holds (checked after events), the timeout expires, or the container ends.

        :param timeout: seconds; ``None`` is no limit.
        :returns: whether the condition holds.
        """
        loop = self.loop
        end = None if timeout is None else loop.time() + timeout
        timer = None if end is None else loop.call_at(end, loop.stop)
        self._watch = condition
        try:
            while not (holds := bool(condition())) and not self._over:
                if end is not None and loop.time() >= end:
                    break
                self._pump_soon()
                self._run_loop()
                self.raise_error()
        finally:
            self._watch = None
            if timer is not None:
                timer.cancel()
        return holds

    def turn_on(self) -> None:
        """Run the loop until an event is pending for a handler, or a timer stops it."""
        self.stops = True
        try:
            self._run_loop()
        finally:
            self.stops = False

    def turn(self) -> None:
        """Serve sockets and timers that are due now, without calling a handler."""
        held, self.held = self.held, True
        try:
            for _ in range(_TURNS):
                self.loop.call_soon(self.loop.stop)
                self._run_loop()
        finally:
            self.held = held

    def until_due(self) -> float:
        """Return the seconds until a connection needs the loop; 0 or less if it needs the loop now.

        A bound connection needs it for its next heartbeat; one without an engine always does.
        Thread-safe; the value may be outdated at once.
        """
        loop, due = self._loop, math.inf
        if loop is None:
            return 0.0
        for kept in self._alive.copy():
            if isinstance(kept, Kept):
                due = min(due, kept.due())
        return due - loop.time()

    def raise_error(self) -> None:
        """Raise the error of a handler, if any."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def shut_down(self) -> None:
        """Close everything without waiting for a peer, and close a loop of the container's own."""
        self._close_all()
        loop = self._loop
        if loop is not None and self._own_loop and not loop.is_closed():
            with _no_loop_around():
                loop.run_until_complete(self._end_tasks())
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            self._loop = None
            self._own_loop = self.begun = False
            self._pump_handle = None

    def _run_loop(self) -> None:
        with _no_loop_around():
            self.loop.run_forever()

    def yield_(self) -> None:
        """Do nothing: ``run_until`` checks its condition after every batch of events."""

    def wakeup(self) -> None:
        """End a waiting ``process``.  Thread-safe."""
        self.loop.call_soon_threadsafe(self._pump_soon)

    def mark(self) -> float:
        """Return the current time, in seconds since the epoch."""
        self._now: float = super().mark()
        return self._now

    def _close_all(self) -> None:
        self._over = self._shut = True
        self._selectables_watched.close()
        for kept in tuple(self._alive):
            if isinstance(kept, Kept):
                kept.let_go()

    async def _end_tasks(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Sockets are closed by callbacks of the loop.
        await asyncio.sleep(0)
        for kept in tuple(self._alive):
            if isinstance(kept, Kept):
                kept.abort()
        await asyncio.sleep(0)

    def dial(self, binding: Any) -> None:
        """Dial for a connection that the application opened (``container.Container``)."""

    # -- objects that keep it running ---------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Return whether there is a connection, a timer or a listener."""
        return bool(self._alive)

    def hold(self, something: Any) -> None:
        """Keep ``run`` from ending until ``release``."""
        self._alive[something] = None

    def release(self, something: Any) -> None:
        """Let ``run`` end: the object can produce no more events."""
        self._alive.pop(something, None)
        self._pump_soon()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of the container's."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
        self._pump_soon()

    # -- events -------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Return whether a handler's error is not raised yet; no event is dispatched meanwhile."""
        return self.error is not None

    @property
    def quiesced(self) -> bool:
        """Return whether no event is pending."""
        return not self._queue and not self._dirty

    def dispatch(self, event: Any) -> None:
        """Give an event to its handler, at once if possible; drop it once ``run`` ends."""
        if self._shut:
            return
        if self.held or self.error is not None:
            self.mark_pending()
            self._queue.append(event)
            return
        self._dispatched += 1
        try:
            event.dispatch(event.handler or self._handler)
            if self._global_handler is not None:
                event.dispatch(self._global_handler)
        except BaseException as error:  # noqa: BLE001 - ``run`` raises it
            self._fail(error)

    def post(self, event: Any) -> None:
        """Dispatch an event soon."""
        self._queue.append(event)
        self._pump_soon()

    def push_event(self, obj: Any, etype: EventType) -> None:
        """Dispatch an event of a kind soon; an ``ApplicationEvent`` is dispatched itself."""
        self.post(obj if isinstance(obj, proton_reactor.ApplicationEvent) else Event(self, etype, obj))

    def wake(self, binding: Bound) -> None:
        """Dispatch soon the local events of a connection that has no engine."""
        self._dirty[binding] = None
        self._pump_soon()

    def mark_pending(self) -> None:
        """Note that an event is pending for a handler."""
        self.pending = True
        if self.stops:
            self.loop.stop()

    def catch_up(self) -> None:
        """Call handlers with the pending events.  The loop is stopped, so they may run it themselves."""
        if not self.pending:
            return
        held, self.held, self.pending = self.held, False, False
        try:
            self._pump_now()  # the queue is older than proton's collected events
            for kept in tuple(self._alive):
                if isinstance(kept, Kept):
                    kept.catch_up()
        finally:
            self.held = held
            self.pending |= self.failed
        self.raise_error()

    def events_handled(self) -> None:
        """Stop the loop if the events just dispatched ended the wait."""
        if self._watch is not None and (self.error is not None or self._watch()):
            self.loop.stop()

    def _pump_soon(self) -> None:
        if self._pump_handle is None and self._loop is not None and not self._loop.is_closed():
            self._pump_handle = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_handle = None
        if self.held:
            self.mark_pending()
        else:
            self._pump_now()
            self.events_handled()

    def _pump_now(self) -> None:
        while not self.held and self.error is None:
            if self._queue:
                event = self._queue.popleft()
                self.dispatch(event)
                if event.type in SELECTABLE_EVENTS:
                    self._selectables_watched.follow(event.type, event.context)
            elif self._dirty:
                binding = next(iter(self._dirty))
                del self._dirty[binding]
                binding.drain()
            elif not self._end_if_idle():
                break

    def _end_if_idle(self) -> bool:
        """End if nothing is left; return whether there are more events to dispatch after all."""
        if self._over or (not self._stop and (self._alive or self._tasks)):
            return False
        self._over = True
        self.dispatch(Event(self, ProtonEvent.REACTOR_FINAL, self))
        if self._stop or not (self._queue or self._alive or self._tasks):
            self._end()
            return False
        self._over = False
        return True

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self._end()

    def _end(self) -> None:
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
        elif self._loop is not None and self._loop.is_running():
            self._loop.stop()


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _never() -> bool:
    return False


@contextlib.contextmanager
def _no_loop_around() -> Iterator[None]:
    """Let a loop run inside a callback of another one, which is suspended: a blocking call in a coroutine."""
    around = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(around)
