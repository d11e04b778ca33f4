"""The drop-in's ``Container``, with handlers as in programs for proton."""

from __future__ import annotations

import threading
import time
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.utils import SendException

from haclient.reactor import Container
from tests.brokers.programs.task import (
    GLANCE,
    PATIENCE,
    Input,
    LossLog,
    Messages,
    ProgramJournal,
    Receipts,
    Task,
    program,
    ready,
)
from tests.faults.history import Name

_BURSTS_PER_SECOND = 20


class _Program(MessagingHandler):
    """The common base of producer and consumer: records errors, and checks for the request to finish."""

    def __init__(self, task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
        super().__init__()
        self._task = task
        self._journal = journal
        self._finishing = finishing
        self._connection: Any = None
        self._is_ready = False

    def on_start(self, event: Any) -> None:
        self._connection = self._connect(event.container)
        self._open(event.container)

    def on_link_opened(self, event: Any) -> None:
        if not self._is_ready:
            self._is_ready = True
            ready()
            self._schedule(event.container)

    def on_connection_error(self, event: Any) -> None:
        self._fails("connection", event.connection.remote_condition)

    def on_session_error(self, event: Any) -> None:
        self._fails("session", event.session.remote_condition)

    def on_link_error(self, event: Any) -> None:
        self._fails("link", event.link.remote_condition)

    def on_timer_task(self, event: Any) -> None:
        if not self._ends():
            self._schedule(event.container)

    def _fails(self, call: str, condition: Any) -> None:
        self._journal.fails(call, str(condition and condition.name), after=0.0, limit=0.0)

    def _connect(self, container: Any) -> Any:
        return container.connect(self._task.url)

    def _open(self, container: Any) -> None:
        raise NotImplementedError

    def _ends(self) -> bool:
        """Called periodically; return whether the connection is closed now."""
        raise NotImplementedError

    def _schedule(self, container: Any) -> None:
        container.schedule(GLANCE, self)


class Producer(_Program):
    """Sends at its rate while there is credit."""

    def __init__(self, task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
        super().__init__(task, journal, finishing)
        self._messages = Messages(task, journal)
        self._pending: dict[Any, tuple[Name, float]] = {}
        self._sender: Any = None

    def _open(self, container: Any) -> None:
        self._sender = container.create_sender(self._connection, self._task.queue)

    def _schedule(self, container: Any) -> None:
        container.schedule(1 / _BURSTS_PER_SECOND, self)

    def _ends(self) -> bool:
        if not self._finishing.is_set():
            self._send()
            return False
        if self._pending:
            return False
        self._connection.close()
        return True

    def _send(self) -> None:
        for _ in range(min(self._sender.credit, max(1, round(self._task.rate / _BURSTS_PER_SECOND)))):
            name, body = self._messages.next()
            delivery = self._sender.send(Message(body=body, durable=True))
            self._pending[delivery] = (name, time.monotonic())

    def on_accepted(self, event: Any) -> None:
        self._settled(event, None)

    def on_rejected(self, event: Any) -> None:
        self._settled(event, SendException(event.delivery.remote_state))

    def on_released(self, event: Any) -> None:
        self._settled(event, SendException(event.delivery.remote_state))

    def _settled(self, event: Any, error: Exception | None) -> None:
        name, began = self._pending.pop(event.delivery)
        self._messages.ends(name, error, began=began, limit=PATIENCE)


class Consumer(_Program):
    """Records each message; proton accepts it when the handler returns."""

    def __init__(self, task: Task, journal: ProgramJournal, finishing: threading.Event) -> None:
        super().__init__(task, journal, finishing)
        self._receipts = Receipts(task, journal)

    def _open(self, container: Any) -> None:
        container.create_receiver(self._connection, self._task.queue)

    def _ends(self) -> bool:
        if self._finishing.is_set():
            self._connection.close()
        return self._finishing.is_set()

    def on_message(self, event: Any) -> None:
        receipt = self._receipts.receives(event.message.body, event.message.delivery_count)
        self._journal.accepts(receipt)


def main(container: Any, producer: type[Producer], consumer: type[Consumer]) -> None:
    """Run the task on the command line.

    :param container: the drop-in's class, or proton's.
    """
    with program() as (task, journal):
        LossLog(journal)
        request = Input()
        request.start()
        kind = producer if task.role == "producer" else consumer
        container(kind(task, journal, request.finishing)).run()
        if not request.finishing.is_set():
            journal.fails("run", "EndedEarly", after=0.0, limit=0.0)


if __name__ == "__main__":
    main(Container, Producer, Consumer)
