"""An application on rabbitmq-amqp-python-client, with its publisher and consumer.

rabbitmq_client.py check   URL[,URL]                its unmodified connection
rabbitmq_client.py publish URL[,URL] ADDRESS COUNT  until COUNT are settled after a loss
rabbitmq_client.py consume URL[,URL] ADDRESS COUNT  COUNT messages

The connection accepts only RabbitMQ 4, by ``product`` and ``version`` of the Open. ``publish`` and
``consume`` skip that check. The client's recovery begins with the peer's Close, which a killed process
does not send. So this application disables the recovery and dials again itself.
"""

# ruff: noqa: T201 - a test reads the output

import sys
import time

from rabbitmq_amqp_python_client import (
    AMQPMessagingHandler,
    Connection,
    Environment,
    Event,
    Message,
    RecoveryConfiguration,
    ValidationCodeException,
)
from rabbitmq_amqp_python_client.qpid.proton import ConnectionException


def connect(urls: str) -> Connection:
    recovery = RecoveryConfiguration(active_recovery=False)
    connection = Environment(uris=urls.split(","), recovery_configuration=recovery).connection()
    connection.dial()
    return connection


def connect_again(urls: str) -> Connection:
    while True:
        try:
            return connect(urls)
        except ConnectionException:
            time.sleep(0.1)


def check(urls: str) -> None:
    try:
        connect(urls)
    except ValidationCodeException as error:
        print("refused:", error)


def publish(urls: str, address: str, count: str) -> None:
    publisher = connect(urls).publisher(address)
    number, left, lost = 0, int(count), False
    while not lost or left > 0:
        try:
            publisher.publish(Message(body=b"%d" % number))
        except ConnectionException:
            lost, left = True, int(count)
            publisher = connect_again(urls).publisher(address)
            continue
        number += 1
        left -= 1
        if number == int(count):
            print("settled", number, flush=True)
    print("sent", number)


class Counting(AMQPMessagingHandler):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def on_amqp_message(self, event: Event) -> None:
        print("message", bytes(event.message.body).decode())
        self.delivery_context.accept(event)
        self.left -= 1
        if not self.left:
            event.receiver.close()

    def on_link_closed(self, event: Event) -> None:
        event.container.stop()


def consume(urls: str, address: str, count: str) -> None:
    connect(urls).consumer(address, message_handler=Counting(int(count))).run()


role, *arguments = sys.argv[1:]
if role != "check":
    Connection._validate_server_properties = lambda _: None
{"check": check, "publish": publish, "consume": consume}[role](*arguments)
