"""Runs the cases of one sender with all receivers, and finds the culprit of each failure.

Modes
-----
* ``calm``: the sender, then each receiver.
* ``killed``: the primary is killed repeatedly while one of our shims runs, and once between sending and
  receiving. Foreign shims have one address and do not reconnect, so there are no kills while they run.

Culprits
--------
The judge (``tap``) is one more receiver. If it gets the values as sent, a receiver that does not is at
fault. Otherwise the judge reads the sender's bytes without a broker. If they are right, the broker is
at fault, else the sender.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proton

from tests.interop.qit import tap
from tests.interop.qit.brokers import Broker, Killer
from tests.interop.qit.cases import Batch, Case, Item, Send, batches
from tests.interop.qit.checkout import Shim
from tests.interop.qit.messages import json_of
from tests.interop.qit.processes import ShimError, call
from tests.interop.qit.results import BROKER, CaseResult, ItemResult

_SHOWN_BYTES = 32
_ORDER = itertools.count(1)
_JUDGE = "judge"
# Seconds for a sender: the rhea shim ends by itself after so many.
_SEND_SECONDS = 30


@dataclass(slots=True)
class Sent:
    """The messages in a queue, in order, and the failed items.

    :ivar order: each message's run, and its item, if it is a single one.
    :ivar failed: the reasons, by item.
    """

    order: list[tuple[Send, Item | None]] = field(default_factory=list)
    failed: dict[Item, str] = field(default_factory=dict)

    def add(self, send: Send) -> None:
        """Record a successful run."""
        alone = len(send.items) == send.messages and send.items[0].text is None
        self.order.extend((send, item) for item in (send.items if alone else [None] * send.messages))

    def problem(self, item: Item, said: Mapping[str, Any]) -> str:
        """Return an item's error in a receiver's output; empty if there is none."""
        if item in self.failed:
            return self.failed[item]
        if "match" in said:
            return item.check(said)
        messages = said.get("messages", [])
        if item.text is not None:
            message = next((each for each in messages if each.get("value") == item.text), None)
        else:
            place = next(index for index, each in enumerate(self.order) if each[1] is item)
            message = messages[place] if place < len(messages) else None
        return "did not arrive" if message is None else item.check(message)


@dataclass(frozen=True, slots=True)
class Runner:
    """One sender, its receivers, one broker, one mode.

    :ivar durable: send durable messages, if the sender can.
    """

    broker: Broker
    checkout: Path
    sender: Shim
    receivers: tuple[Shim, ...]
    killer: Killer | None = None
    durable: bool = False

    async def results(self, suites: Sequence[str]) -> AsyncIterator[CaseResult]:
        """Yield one result for each case and receiver."""
        for jms in (False, True):
            receivers = [receiver for receiver in self.receivers if receiver.speaks_jms == jms]
            if receivers:
                for batch in batches(
                    self.checkout, self.sender, suites, jms_receivers=jms, durable=self.durable
                ):
                    async for result in self._batch(batch, receivers):
                        yield result

    async def _batch(self, batch: Batch, receivers: Iterable[Shim]) -> AsyncIterator[CaseResult]:
        kills = self.killer.kills if self.killer else 0
        queues = {receiver.key: self._queue(receiver.key, batch.name) for receiver in receivers}
        judge = Judge(self, batch, self._queue(_JUDGE, batch.name))
        if self.broker.fan_out is not None:
            exchange = self._queue("all", batch.name)
            async with self.undisturbed():
                await self.broker.fan_out(exchange, [*queues.values(), judge.queue])
            judge.sent = await self.send(batch.sends, exchange)
            sent = dict.fromkeys(queues, judge.sent)
        else:
            sent = {key: await self.send(batch.sends, queue) for key, queue in queues.items()}
        if self.killer is not None:
            async with self.killer.spared():
                await self.killer.once()
        for receiver in receivers:
            said, where = await self._receive(batch, receiver, queues[receiver.key], sent[receiver.key])
            results = [self._result(case, receiver) for case in batch.cases]
            for case, result in zip(batch.cases, results, strict=True):
                for item in case.items:
                    result.items.append(ItemResult(item.name, where[item].problem(item, said[item])))
                await judge.blame(case, result, receiver)
            results[0].kills = (self.killer.kills if self.killer else 0) - kills
            kills = self.killer.kills if self.killer else 0
            for result in results:
                yield result

    def _result(self, case: Case, receiver: Shim) -> CaseResult:
        mode = "killed" if self.killer else "calm"
        return CaseResult(
            broker=self.broker.name,
            version=self.broker.version,
            mode=mode,
            sender=self.sender.key,
            receiver=receiver.key,
            suite=case.suite,
            case=case.name,
        )

    def _queue(self, *names: str) -> str:
        name = "-".join(("qit", self.sender.key, *names, str(next(_ORDER))))
        return self.broker.queue(re.sub(r"[^a-z0-9-]+", "-", name.lower()))

    # -- sending ----------------------------------------------------------------------------------

    async def send(self, sends: Iterable[Send], address: str) -> Sent:
        """Execute these runs of the sender. If a run fails, execute it message by message.

        A failed run has sent nothing: the shims encode before they send, and succeed only if everything
        is accepted.
        """
        sent = Sent()
        for each in sends:
            await self._send(each, address, sent)
        return sent

    async def _send(self, send: Send, address: str, sent: Sent) -> None:
        try:
            await self._run_sender(send, address)
            sent.add(send)
        except ShimError as error:
            parts = send.split()
            for part in parts if len(parts) > 1 else ():
                await self._send(part, address, sent)
            if len(parts) == 1:
                sent.failed |= dict.fromkeys(send.items, f"{self.sender.key} does not send it: {error}")

    # -- receiving --------------------------------------------------------------------------------

    async def _receive(
        self, batch: Batch, receiver: Shim, queue: str, sent: Sent
    ) -> tuple[dict[Item, Mapping[str, Any]], dict[Item, Sent]]:
        """Return a receiver's output, and its queue's contents, for each item.

        If the receiver fails, each case gets its own queue; if it fails again, each message does.
        """
        try:
            said = await self._receive_all(receiver, queue, batch, sent)
        except ShimError:
            parts = [(send,) for case in batch.cases for send in case.sends]
        else:
            items = [item for case in batch.cases for item in case.items]
            return dict.fromkeys(items, said), dict.fromkeys(items, sent)
        found: dict[Item, Mapping[str, Any]] = {}
        where: dict[Item, Sent] = {}
        for (send,) in parts:
            await self._receive_alone(send, batch, receiver, found, where)
        return found, where

    async def _receive_alone(
        self,
        send: Send,
        batch: Batch,
        receiver: Shim,
        found: dict[Item, Mapping[str, Any]],
        where: dict[Item, Sent],
    ) -> None:
        queue = self._queue(receiver.key, batch.name)
        sent = await self.send([send], queue)
        try:
            said = await self._receive_all(receiver, queue, batch, sent)
        except ShimError as error:
            parts = send.split()
            if len(parts) > 1:
                for part in parts:
                    await self._receive_alone(part, batch, receiver, found, where)
                return
            for item in send.items:
                sent.failed.setdefault(item, f"{receiver.key} does not receive it: {error}")
            said = {}
        found |= dict.fromkeys(send.items, said)
        where |= dict.fromkeys(send.items, sent)

    async def _receive_all(self, receiver: Shim, queue: str, batch: Batch, sent: Sent) -> Mapping[str, Any]:
        if not sent.order:
            return {}
        arguments = batch.large or ("--count", str(len(sent.order)))
        options = ("--queue", queue, *arguments, "--timeout", str(batch.seconds))
        return await self._shim(receiver, "receive", options, batch.seconds)

    # -- shims ------------------------------------------------------------------------------------

    async def _run_sender(self, send: Send, address: str) -> None:
        await self._shim(self.sender, "send", ("--queue", address, *send.arguments), _SEND_SECONDS)

    async def _shim(
        self, shim: Shim, command: str, arguments: Sequence[str], seconds: float
    ) -> Mapping[str, Any]:
        """Run a shim, and return its output.

        :raises ShimError: if it fails.
        """
        if shim.fails_over:
            return await call(shim, (command, "--broker", self.broker.url, *arguments), seconds)
        async with self.undisturbed():
            url = shim.broker_prefix + await self.broker.primary()
            return await call(shim, (command, "--broker", url, *arguments), seconds)

    @contextlib.asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        async with self.killer.spared() if self.killer else contextlib.nullcontext():
            yield


@dataclass(slots=True)
class Judge:
    """Finds the culprits in the cases of one batch.

    :ivar sent: the messages already sent to its queue.
    """

    runner: Runner
    batch: Batch
    queue: str
    sent: Sent | None = None
    _stored: list[bytes] | None = None

    async def blame(self, case: Case, result: CaseResult, receiver: Shim) -> None:
        """Add the culprit to the results that have a problem."""
        runner = self.runner
        for item, given in zip(result.items, case.items, strict=True):
            if not item.problem:
                continue
            if f"{runner.sender.key} does not send it" in item.problem:
                item.fault = runner.sender.key
                continue
            stored, sent = await self._look()
            place = _place(sent, given)
            item.wire = _evidence(stored[place], given).hex() if place < len(stored) else ""
            if not self._finds(given, sent, stored):
                item.fault = receiver.key
            else:
                item.fault = await self._sender_or_broker(given)

    async def _look(self) -> tuple[list[bytes], Sent]:
        """Return the messages that the broker delivers to the judge."""
        runner = self.runner
        if self.sent is None:
            self.sent = await runner.send(self.batch.sends, self.queue)
        if self._stored is None:
            async with runner.undisturbed():
                address = await runner.broker.primary()
                self._stored = await tap.stored(address, self.queue, len(self.sent.order))
        return self._stored, self.sent

    async def _sender_or_broker(self, item: Item) -> str:
        runner = self.runner
        (send,) = (each for case in self.batch.cases for each in case.sends if item in each.items)

        async def run(address: str) -> None:
            url = runner.sender.broker_prefix + address
            with contextlib.suppress(ShimError):
                options = ("send", "--broker", url, "--queue", self.queue, *send.arguments)
                await call(runner.sender, options, _SEND_SECONDS)

        sent = Sent()
        sent.add(send)
        written = await tap.written(run, send.messages)
        return runner.sender.key if self._finds(item, sent, written) else BROKER

    def _finds(self, item: Item, sent: Sent, data: Sequence[bytes]) -> str:
        """Return an item's error in these messages; empty if there is none."""
        if self.batch.large:
            return "" if len(data) == 1 and _bytes_of(data[0]) else "did not arrive"
        messages = []
        for index, one in enumerate(data):
            try:
                messages.append(json_of(tap.read(one), index))
            except (proton.MessageException, ValueError, TypeError) as error:
                messages.append({"type": f"what proton cannot read ({error})", "value": None})
        return sent.problem(item, {"messages": messages})


def _place(sent: Sent, item: Item) -> int:
    """Return the position of an item's message, or the end if there is none."""
    for index, each in enumerate(sent.order):
        if each[1] is item or (each[1] is None and item in each[0].items):
            return index
    return len(sent.order)


def _evidence(data: bytes, item: Item) -> bytes:
    """Return the bytes of an item in a message: its body, or the first property or header."""
    if item.text is None:
        return tap.body(data)[:_SHOWN_BYTES]
    sections = tap.bare(data)
    start = max(sections.find(item.mark.encode()), 0)
    return sections[start : start + _SHOWN_BYTES]


def _bytes_of(data: bytes) -> Any:
    with contextlib.suppress(proton.MessageException):
        return tap.read(data).body
    return None
