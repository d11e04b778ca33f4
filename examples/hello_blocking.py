"""The smallest blocking program: send a message, receive it, accept it.

python examples/hello_blocking.py [URL]
"""

from __future__ import annotations

import sys

import haclient


def main(url: str) -> None:
    with haclient.connect(url) as connection:
        with connection.create_sender("hello") as sender:
            outcome = sender.send("hello, world", timeout=10)
            print(f"sent, and {outcome.state.name.lower()} by {connection.endpoint}")

        with connection.create_receiver("hello") as receiver:
            delivery = receiver.receive(timeout=10)
            with delivery:  # accepts at the end of the block
                print(f"received {delivery.body!r}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672")
