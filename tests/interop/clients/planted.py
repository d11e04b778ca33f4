"""A client with deliberate faults, on the blocking API, to test the judge of the clients.

planted.py send    MEMBERS QUEUE PRODUCER RATE WINDOW
planted.py receive MEMBERS QUEUE

PLANTED names its fault with each 50th message: report it settled without sending it (``lose``), send it
twice (``double``), give it up (``give up``), or exit (``end``).
"""

# ruff: noqa: T201 - prints the history

from __future__ import annotations

import os
import sys
import threading
import time

from haclient import Message, blocking
from haclient.errors import ReceiveTimeout

_NTH = 50


def _watch_input(stopping: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    stopping.set()


def send(url: str, queue: str, producer: str, rate: int, stopping: threading.Event) -> None:
    planted = os.environ["PLANTED"]
    with blocking.connect(url) as connection:
        sender = connection.create_sender(queue)
        number = 0
        while not stopping.is_set():
            print("sent", number, flush=True)
            filling = f"{number:x}."
            body = f"{producer} {number} {len(filling)} {filling}"
            nth = number % _NTH == _NTH - 1
            if nth and planted == "end":
                return
            for _ in range({"lose": 0, "double": 2, "give up": 0}.get(planted, 1) if nth else 1):
                sender.send(Message(body=body), timeout=30)
            print("unknown" if nth and planted == "give up" else "accepted", number, flush=True)
            number += 1
            time.sleep(1 / rate)


def receive(url: str, queue: str, stopping: threading.Event) -> None:
    with blocking.connect(url) as connection:
        receiver = connection.create_receiver(queue, credit=100)
        while not stopping.is_set():
            try:
                delivery = receiver.receive(timeout=0.1)
            except ReceiveTimeout:
                continue
            message = delivery.message
            link = delivery._core.session_number
            print("received", link, message.delivery_count, message.body, flush=True)
            delivery.accept()


def main() -> None:
    role, members, queue, *arguments = sys.argv[1:]
    stopping = threading.Event()
    threading.Thread(target=_watch_input, args=(stopping,), daemon=True).start()
    url = f"amqp://{members}/?backoff_base=0.02&backoff_max=0.25"
    if role == "send":
        send(url, queue, arguments[0], int(arguments[1]), stopping)
    else:
        receive(url, queue, stopping)


main()
