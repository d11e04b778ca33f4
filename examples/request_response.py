"""A server that squares numbers, and a client that sends it requests, across failovers.

    python examples/request_response.py [URL]

Replies go to a dynamic address, which the primary makes and which is lost with that primary.  So the client
reads ``receiver.address`` anew for every request.  If no reply arrives in time, the request or the reply may
be lost, and the client sends the request again.  A correlation id matches replies to requests, so the client
can drop late replies.  Ctrl-C ends the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import uuid

from haclient import Message, aio
from haclient.errors import MessageNotAccepted

REPLY_WITHIN = 1.0  # seconds


async def serve(connection: aio.Connection) -> None:
    requests = await connection.create_receiver("squares")
    replies = await connection.create_sender(None)  # each reply names its own address
    async for request in requests:
        async with request:  # after a failover the request is delivered and answered again
            number, reply_to = request.body, request.message.reply_to
            if not isinstance(number, int) or reply_to is None:
                await request.reject("amqp:decode-error", "a request is a whole number and an address")
                continue
            correlation_id = request.message.correlation_id
            try:
                await replies.send(Message(address=reply_to, correlation_id=correlation_id, body=number**2))
            except MessageNotAccepted:
                print(f"server: {reply_to} is gone, whoever asked will ask again", flush=True)


class Client:
    """Sends requests and hands each reply to the request that waits for it."""

    def __init__(self, requests: aio.Sender, replies: aio.Receiver) -> None:
        self._requests = requests
        self._replies = replies
        self._waiting: dict[str, asyncio.Future[object]] = {}

    async def ask(self, number: int) -> object:
        """Send a request until a reply arrives."""
        while True:
            try:
                async with asyncio.timeout(REPLY_WITHIN):
                    return await self._ask_once(number)
            except TimeoutError:
                print(f"client: no reply for {number} within {REPLY_WITHIN} s, asking again", flush=True)

    async def _ask_once(self, number: int) -> object:
        request_id = str(uuid.uuid4())
        reply = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            reply_to = self._replies.address  # changes with each failover
            print(f"client: {number}, reply to {reply_to}", flush=True)
            await self._requests.send(Message(body=number, reply_to=reply_to, correlation_id=request_id))
            return await reply
        finally:
            del self._waiting[request_id]

    async def take_replies(self) -> None:
        """Hand out replies until cancelled."""
        async for reply in self._replies:
            async with reply:
                waiting = self._waiting.get(str(reply.message.correlation_id))
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply.body)


async def main(url: str) -> None:
    async with (
        aio.ConnectionFactory(url) as factory,
        factory.connect() as server,
        factory.connect() as connection,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(serve(server))
        requests = await connection.create_sender("squares")
        replies = await connection.create_receiver(None, dynamic=True)
        client = Client(requests, replies)
        tasks.create_task(client.take_replies())
        for number in itertools.count(1):
            print(f"client: the square of {number} is {await client.ask(number)}", flush=True)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"))
