"""Puts a token into the node ``$cbs`` for each address, before a link to it is attached.

Azure Service Bus and Event Hubs have no other log-in by tokens: the client logs in without a name (SASL
MSSBCBS or ANONYMOUS), and each address needs a token.

Rules
-----
* One put for each address; links to an address wait for its answer.  A refused put fails them, not others.
* A new token is put again for every address that has links, over the same session; without links, for all
  addresses so far.  If it is refused, new links get the former one.
* The links to the node are closed after the last answer: brokers detach idle ones.
* If the node does not answer, or answers with a status of 5xx, the session ends, and the client connects
  again; also at a renewal.

Sources: OASIS, "AMQP Claims-based Security 1.0"; Microsoft, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide", section "Claims-based authorization".
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import proton

from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.engine.sasl.claims import SHARED_ACCESS
from haclient.engine.sasl.mechanisms import CLAIMS
from haclient.error_catalog.base import brief, quoted
from haclient.errors import HaclientError, LinkRefused

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
    from haclient.engine.protocol import Engine
    from haclient.outcome import Outcome

_NODE, _UNAUTHORIZED = "$cbs", "amqp:unauthorized-access"
_CREDIT = 100
_SUCCESS, _TEMPORARY = range(200, 300), range(500, 600)
_NUMBER = re.compile("[0-9]{1,15}")


class Waiting(Protocol):
    """A link that waits to be attached."""

    address: str | None

    def fail(self, error: HaclientError) -> None:
        """End the link."""


def are_needed(engine: Engine) -> bool:
    """Return whether the client has a token, and has logged in without a name."""
    return engine.settings.bearer and engine.incoming.mechanism in ("ANONYMOUS", CLAIMS)


def begin(engine: Engine, session: proton.Session, name: str, patience: float) -> Claims | None:
    """Attach the links to the node, if puts are needed.

    :param name: name of the links.
    :param patience: seconds for the node to answer.
    """
    token = engine.settings.password or ""
    return Claims(engine, session, token, name=name, patience=patience) if are_needed(engine) else None


class _Put:
    """The last put for one address.

    :ivar number: id of its request; the answers of earlier ones are ignored.
    :ivar links: links that wait for it, each with the function that attaches it.
    """

    __slots__ = ("links", "number")

    def __init__(self, number: int, links: list[tuple[Waiting, Callable[[], None]]]) -> None:
        self.number, self.links = number, links


class Claims:
    """The puts over one session."""

    def __init__(
        self, engine: Engine, session: proton.Session, token: str, *, name: str, patience: float
    ) -> None:
        self._engine, self._session, self._name = engine, session, name
        self._token, self._patience = token, patience
        self._allowed: set[str] = set()
        self._puts: dict[str, _Put] = {}
        self._addresses: dict[int, str] = {}  # by number
        self._unsent: dict[str, None] = {}
        self._numbers = itertools.count(1)
        self._links: tuple[SenderLink, ReceiverLink] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewed: asyncio.Future[str] | None = None

    def must_wait(self, link: Waiting, attach: Callable[[], None]) -> bool:
        """Return whether a link must wait until ``attach`` is called; put a token if none was put."""
        address = link.address or ""
        if address in self._allowed:
            return False
        if address not in self._puts:
            self._put(address)
        self._puts[address].links.append((link, attach))
        return True

    async def renew(self, token: str, links: Iterable[Waiting]) -> str:
        """Put a new token for the addresses of links, and wait for the answers.

        :returns: why a put was refused; empty if none was.
        """
        former, self._token = self._token, token
        # The address of a dynamic node changes when it is attached.
        self._allowed = self._allowed & {"", *(link.address or "" for link in links)} or self._allowed
        if not (again := self._allowed | self._puts.keys()):
            return ""
        self._renewed = asyncio.get_running_loop().create_future()
        for address in again:
            self._put(address)
        if refused := await self._renewed:
            self._token = former
        return refused

    def stop(self) -> None:
        """Stop waiting: the session has ended."""
        self._puts.clear()
        self._end("the session has ended")

    def _put(self, address: str) -> None:
        former = self._puts.get(address)
        number = next(self._numbers)
        self._puts[address] = _Put(number, [] if former is None else former.links)
        self._addresses[number] = address
        self._unsent[address] = None
        if self._timer is None:
            self._wait()
        if self._links is None:
            self._links = self._attach(f"{self._name}-{number}")
        self._send()

    def _attach(self, name: str) -> tuple[SenderLink, ReceiverLink]:
        sender = self._engine.sender(self._session, name, self)
        receiver = self._engine.receiver(self._session, name, self)
        sender.endpoint.target.address, sender.endpoint.source.address = _NODE, name
        receiver.endpoint.source.address, receiver.endpoint.target.address = _NODE, name
        for link in (sender, receiver):
            self._engine.attach(link)
        receiver.grant(_CREDIT)
        return sender, receiver

    def _wait(self) -> None:
        """Wait for the next answer."""
        if self._timer is not None:
            self._timer.cancel()
        text = f"{_NODE} did not answer"
        self._timer = asyncio.get_running_loop().call_later(self._patience, self._give_up, text)

    def _give_up(self, text: str) -> None:
        self._engine.abort(proton.Condition("haclient:no-answer", text))

    def _send(self) -> None:
        while self._links is not None and self._unsent and self._links[0].credit > 0:
            address = next(iter(self._unsent))
            del self._unsent[address]
            self._links[0].send(bytes(self._request(address).encode()), self._puts[address].number)

    def _request(self, address: str) -> proton.Message:
        is_shared = self._token.startswith(SHARED_ACCESS)
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken" if is_shared else "jwt",
            "name": f"sb://{self._engine.settings.hostname}/{address}",
        }
        number = self._puts[address].number
        return proton.Message(id=str(number), reply_to=_NODE, properties=properties, body=self._token)

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: SenderLink | ReceiverLink) -> None:
        """Do nothing: credit follows."""

    def link_closed(self, link: SenderLink | ReceiverLink, condition: proton.Condition | None) -> None:
        """Refuse every pending put: the broker has no such node."""
        if self._links is not None and link in self._links:
            why = (
                ""
                if condition is None
                else f": {brief(condition.name)}: {self._shown(condition.description)}"
            )
            for address in tuple(self._puts):
                self._answer(address, f"the broker takes no tokens in {_NODE}{why}")

    def credit_given(self, link: SenderLink) -> None:
        """Send the waiting requests."""
        self._send()

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Refuse a put whose request the node did not accept; otherwise its response follows."""
        address = self._pending(str(token))
        if outcome is not None and not outcome.accepted and address is not None:
            self._answer(address, f"{_NODE} did not accept the request")

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Handle a response."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        try:
            message = codec.decode(data)
        except UndecodableMessage:
            return
        address = self._pending(message.correlation_id)
        if address is None:
            return
        properties: dict[str, Any] = message.properties or {}
        code, text = properties.get("status-code"), properties.get("status-description")
        status = int(code) if isinstance(code, int) else 0
        reason = f"{status} {self._shown(text)}"
        if status in _SUCCESS:
            self._allowed.add(address)
            self._answer(address, "")
        elif status in _TEMPORARY:
            self._give_up(f"{_NODE} cannot take the token now: {reason}")
        else:
            self._answer(address, f"{_NODE} refuses the token for {quoted(address)}: {reason}")

    def _pending(self, correlation: Any) -> str | None:
        """Return the address whose last put has this id; ``None`` if there is none."""
        known = isinstance(correlation, str) and _NUMBER.fullmatch(correlation)
        address = self._addresses.get(int(correlation)) if known else None
        put = None if address is None else self._puts.get(address)
        return address if put is not None and str(put.number) == correlation else None

    def _shown(self, text: Any) -> str:
        """Return the node's text for an error, without the token."""
        return brief(str(text or "no reason given").replace(self._token, "***"))

    def _answer(self, address: str, refused: str) -> None:
        put = self._puts.pop(address)
        self._unsent.pop(address, None)
        for link, attach in put.links:
            if refused:
                link.fail(LinkRefused(refused, _UNAUTHORIZED))
            else:
                attach()
        if refused and self._renewed is not None and not self._renewed.done():
            self._renewed.set_result(refused)
        if self._puts:
            self._wait()
        else:
            self._end("")

    def _end(self, problem: str) -> None:
        """Close the links: brokers detach idle ones."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renewed is not None and not self._renewed.done():
            self._renewed.set_result(problem)
        links, self._links, self._timer = self._links or (), None, None
        self._addresses.clear()
        self._unsent.clear()
        for link in links:
            link.close()
