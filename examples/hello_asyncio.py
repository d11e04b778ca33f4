"""The smallest asyncio program: send a message, receive it, accept it.

python examples/hello_asyncio.py [URL]
"""

from __future__ import annotations

import asyncio
import sys

from haclient import aio


async def main(url: str) -> None:
    async with aio.connect(url) as connection:
        async with connection.create_sender("hello") as sender:
            outcome = await sender.send("hello, world", timeout=10)
            print(f"sent, and {outcome.state.name.lower()} by {connection.endpoint}")

        async with connection.create_receiver("hello") as receiver:
            delivery = await receiver.receive(timeout=10)
            async with delivery:  # accepts at the end of the block
                print(f"received {delivery.body!r}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"))
