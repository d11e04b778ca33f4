"""An application on rabbitmq-amqp-python-client, with its publisher and consumer.

rabbitmq_amqp.py send    MEMBERS QUEUE PRODUCER RATE WINDOW
rabbitmq_amqp.py receive MEMBERS QUEUE

The client's recovery begins with the peer's Close, which a killed process does not send, and its
connection follows no redirect. So the application disables the recovery, tries the members in turn, and
follows redirects.

With a user in the environment (CLIENT_USER, CLIENT_PASSWORD) the broker is RabbitMQ. Then the recovery
is enabled and has all members, and the application dials again if the recovery did nothing.

The publisher waits for the outcome of each message, so WINDOW has no effect. The connection refuses
every product except RabbitMQ 4; the application disables that check.
"""

# ruff: noqa: T201 - prints the history

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from rabbitmq_amqp_python_client import (
    AMQPMessagingHandler,
    Connection,
    Environment,
    Event,
    Message,
    RecoveryConfiguration,
)
from rabbitmq_amqp_python_client.qpid.proton import ConnectionException, LinkException
from rabbitmq_amqp_python_client.qpid.proton.utils import ConnectionClosed

PAUSE = 0.05
CREDIT = 100
stopping = threading.Event()


def watch_input() -> None:
    while os.read(0, 1024):
        pass
    stopping.set()


def say(*words: object) -> None:
    print(*words, flush=True)


class Members:
    """The candidate members, and the target of the last redirect."""

    def __init__(self, argument: str) -> None:
        self.all = argument.split(",")
        self.user = os.environ.get("CLIENT_USER", "")
        self.turn = 0
        self.redirect: str | None = None

    def visit(self, use: Callable[[Connection], None]) -> bool:
        """Use one connection to one member, and choose the next member from how it ends. Return whether
        all is done.
        """
        try:
            connection = self._recovering() if self.user else self._connect()
            while not self._uses(use, connection):
                say("connected", "by its recovery")
        except (ConnectionException, LinkException) as error:
            print(error, file=sys.stderr)
            say("lost", "and dialled again by the application")
            if isinstance(error, ConnectionClosed):
                self._follow(error)
            return False
        return True

    def _uses(self, use: Callable[[Connection], None], connection: Connection) -> bool:
        try:
            use(connection)
        except ConnectionClosed:
            if not self.user:
                raise
            return False
        return True

    def _recovering(self) -> Connection:
        time.sleep(PAUSE)
        account = f"{self.user}:{os.environ['CLIENT_PASSWORD']}"
        urls = [f"amqp://{account}@{member}" for member in self.all]
        recovery = RecoveryConfiguration(back_off_reconnect_interval=timedelta(seconds=1))
        connection = Environment(uris=urls, recovery_configuration=recovery).connection()
        connection.dial()
        say("connected", connection._conn.url)
        return connection

    def _connect(self) -> Connection:
        member, self.redirect = self.redirect, None
        if member is None:
            time.sleep(PAUSE)
            member = self.all[self.turn % len(self.all)]
            self.turn += 1
        recovery = RecoveryConfiguration(active_recovery=False)
        url = f"amqp://anonymous:@{member}"
        connection = Environment(uri=url, recovery_configuration=recovery).connection()
        connection.dial()
        say("connected", member)
        return connection

    def _follow(self, error: ConnectionClosed) -> None:
        condition = error.connection.remote_condition
        if condition is not None and condition.name == "amqp:connection:redirect":
            self.redirect = f"{condition.info['network-host']}:{int(condition.info['port'])}"
            say("redirected", self.redirect)


class Sending:
    def __init__(self, queue: str, producer: str, rate: str, _window: str) -> None:
        self.queue, self.producer, self.period = queue, producer, 1 / int(rate)
        self.next = 0
        self.pending: int | None = None

    def run(self, connection: Connection) -> None:
        publisher = connection.publisher(self.queue)
        while self.pending is not None or not stopping.is_set():
            if self.pending is None:
                self.pending, self.next = self.next, self.next + 1
                say("sent", self.pending)
            publisher.publish(self.message(self.pending))
            say("accepted", self.pending)
            self.pending = None
            stopping.wait(self.period)
        connection.close()

    def message(self, number: int) -> Message:
        filling = f"{number:x}."
        return Message(
            body=f"{self.producer} {number} {len(filling)} {filling}".encode(),
            durable=True,
            application_properties={"_AMQ_DUPL_ID": f"{self.producer}-{number}"},
            # The client's consumer requires annotations.
            annotations={"x-opt-number": number},
        )


class Receiving(AMQPMessagingHandler):
    def __init__(self, queue: str) -> None:
        super().__init__()
        self.queue = queue
        self.link = 0

    def run(self, connection: Connection) -> None:
        self.link += 1
        self.connection = connection._conn
        consumer = connection.consumer(self.queue, message_handler=self, credit=CREDIT)
        self.receiver = consumer._receiver.link
        self.connection.container.schedule(PAUSE, self)
        consumer.run()
        if self.connection.disconnected:
            raise ConnectionException(str(self.connection.disconnected))

    def on_timer_task(self, event: Event) -> None:
        # The handler sees only events of its link, so it does not notice a killed peer.
        if self.connection.disconnected:
            event.container.stop()
            return
        if stopping.is_set():
            self.receiver.close()
        event.container.schedule(PAUSE, self)

    def on_link_closed(self, event: Event) -> None:
        event.container.stop()

    def on_amqp_message(self, event: Event) -> None:
        message = event.message
        say("received", self.link, message.delivery_count, bytes(message.body).decode())
        self.delivery_context.accept(event)


def main() -> None:
    role, members, *arguments = sys.argv[1:]
    Connection._validate_server_properties = lambda _: None
    threading.Thread(target=watch_input, daemon=True).start()
    use = {"send": Sending, "receive": Receiving}[role](*arguments)
    going = Members(members)
    while not going.visit(use.run):
        pass


main()
