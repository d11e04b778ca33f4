"""The common part of the two shims: arguments and output.

A shim is a program with two commands, ``send`` and ``receive``. It prints one JSON object, and exits
with 0 on success.

Source: qpid-interop-test 2.0, "How to Write a QIT Shim", CLI contract.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import proton

from tests.interop.qit.large import Content
from tests.interop.qit.messages import JMS_TYPE, JMS_TYPES, json_of, message_for, set_header

# Seconds that a receiver waits by default, by the contract.
_RECEIVE_TIMEOUT = 30
# Seconds. The contract has no limit for senders. Foreign shims end after this time; failovers are shorter.
SEND_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Client:
    """The client that a shim exposes.

    :param send: takes url, queue and messages; returns when all messages are accepted.
    :param receive: takes url, queue, a number of messages and of seconds; returns the received,
        accepted messages.
    """

    send: Callable[[str, str, Sequence[proton.Message]], None]
    receive: Callable[[str, str, int, float], Sequence[proton.Message]]


def run(client: Client) -> int:
    """Execute the command line; return the exit code."""
    arguments = _parser().parse_args()
    content = _content(arguments)
    if arguments.command == "send":
        said = _send(client, arguments) if content is None else _send_large(client, arguments, content)
    elif content is None:
        said = _receive(client, arguments)
    else:
        said = _receive_large(client, arguments, content)
    sys.stdout.write(json.dumps(said) + "\n")
    return 0 if said.get("match", True) else 1


def _send(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    data = json.loads(arguments.data)
    messages = [
        message_for(
            each,
            arguments.type,
            jms=arguments.jms_mode,
            headers=json.loads(arguments.headers),
            properties=json.loads(arguments.properties),
            header=json.loads(arguments.message_header),
        )
        for each in data
    ]
    client.send(arguments.broker, arguments.queue, messages)
    return {"messages": data, "stats": {"sent": len(messages)}}


def _send_large(client: Client, arguments: argparse.Namespace, content: Content) -> dict[str, Any]:
    message = proton.Message(body=content.body())
    set_header(message, json.loads(arguments.message_header))
    if arguments.jms_mode and content.kind in JMS_TYPES:
        message.annotations = {JMS_TYPE: proton.byte(JMS_TYPES[content.kind])}
        message.inferred = content.kind in ("binary", "list")
    client.send(arguments.broker, arguments.queue, [message])
    return {"sent": True, **content.facts()}


def _receive(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    found = client.receive(arguments.broker, arguments.queue, arguments.count, arguments.timeout)
    messages = [json_of(message, position) for position, message in enumerate(found)]
    return {"messages": messages, "stats": {"received": len(messages)}}


def _receive_large(client: Client, arguments: argparse.Namespace, content: Content) -> dict[str, Any]:
    found = client.receive(arguments.broker, arguments.queue, 1, arguments.timeout)
    if not found:
        return {"match": False, "error": "no message received"}
    return content.compare(found[0].body)


def _content(arguments: argparse.Namespace) -> Content | None:
    if arguments.large_content is None:
        return None
    return Content(
        arguments.large_content,
        arguments.seed,
        size=arguments.size,
        elements=arguments.elements,
        element_size=arguments.element_size,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A shim of qpid-interop-test.")
    commands = parser.add_subparsers(dest="command", required=True)
    send, receive = commands.add_parser("send"), commands.add_parser("receive")
    for command in (send, receive):
        command.add_argument(
            "--broker", required=True, help="URL; a cluster URL is as good as one of a broker"
        )
        command.add_argument("--queue", required=True)
        command.add_argument("--large-content", help="binary, string, list, array, map or described")
        for name in ("--size", "--seed", "--elements", "--element-size"):
            command.add_argument(name, type=int, default=0)
    send.add_argument("--type", default="string", help="AMQP type of the bodies")
    send.add_argument("--data", default="[]", help="the messages, as JSON")
    send.add_argument("--jms-mode", action="store_true", help="messages such as a JMS client sends")
    for name in ("--headers", "--properties", "--message-header"):
        send.add_argument(name, default="{}", help="as JSON")
    send.add_argument("--count", type=int, help="not needed: the data says it")
    receive.add_argument("--count", type=int, default=1)
    receive.add_argument("--timeout", type=float, default=_RECEIVE_TIMEOUT, help="seconds")
    return parser
