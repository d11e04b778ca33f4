"""Puts a token into the node ``$cbs`` for each address, before a link to it is attached.

Azure Service Bus and Event Hubs have no other log-in by tokens: the client logs in without a name (SASL
MSSBCBS or ANONYMOUS), and each address needs a token.

Rules
-----
* One put for each address; links to an address wait for its answer.  A refused put fails them, not others.
* A new token is put for every address again, over the same session.
* If the node does not answer, the session ends, and the client connects again.

Sources: OASIS, "AMQP Claims-based Security 1.0"; Microsoft, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide", section "Claims-based authorization".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import proton

from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.engine.sasl.mechanisms import CLAIMS
from haclient.error_catalog.base import brief, quoted
from haclient.errors import HaclientError, LinkRefused

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
    from haclient.engine.protocol import Engine
    from haclient.outcome import Outcome

_NODE, _UNAUTHORIZED = "$cbs", "amqp:unauthorized-access"
_SHARED_ACCESS = "SharedAccessSignature "
_CREDIT = 100
_SUCCESS = range(200, 300)


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


class Claims:
    """The puts over one session."""

    def __init__(
        self, engine: Engine, session: proton.Session, token: str, *, name: str, patience: float
    ) -> None:
        self._engine, self._token, self._patience = engine, token, patience
        self._allowed: set[str] = set()
        self._waiting: dict[str, list[tuple[Waiting, Callable[[], None]]]] = {}
        self._unsent: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sender = engine.sender(session, name, self)
        self._sender.endpoint.target.address, self._sender.endpoint.source.address = _NODE, name
        self._receiver = engine.receiver(session, name, self)
        self._receiver.endpoint.source.address, self._receiver.endpoint.target.address = _NODE, name
        for link in (self._sender, self._receiver):
            engine.attach(link)
        self._receiver.grant(_CREDIT)

    def must_wait(self, link: Waiting, attach: Callable[[], None]) -> bool:
        """Return whether a link must wait until ``attach`` is called; put a token if none was put."""
        address = link.address or ""
        if address in self._allowed:
            return False
        if address not in self._waiting:
            self._put(address)
        self._waiting[address].append((link, attach))
        return True

    def renew(self, token: str) -> None:
        """Put a new token for every address."""
        self._token = token
        for address in self._allowed:
            self._put(address)

    def stop(self) -> None:
        """Stop waiting: the session has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _put(self, address: str) -> None:
        self._waiting.setdefault(address, [])
        self._unsent.append(address)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._late)
        self._send()

    def _late(self) -> None:
        self._engine.abort(proton.Condition("haclient:no-answer", f"{_NODE} did not answer"))

    def _send(self) -> None:
        while self._unsent and self._sender.credit > 0:
            address = self._unsent.pop(0)
            self._sender.send(bytes(self._request(address).encode()), address)

    def _request(self, address: str) -> proton.Message:
        is_shared = self._token.startswith(_SHARED_ACCESS)
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken" if is_shared else "jwt",
            "name": f"sb://{self._engine.settings.hostname}/{address}",
        }
        return proton.Message(id=address, reply_to=_NODE, properties=properties, body=self._token)

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: SenderLink | ReceiverLink) -> None:
        """Do nothing: credit follows."""

    def link_closed(self, link: SenderLink | ReceiverLink, condition: proton.Condition | None) -> None:
        """Fail every waiting link: the broker has no such node."""
        why = "" if condition is None else f": {brief(condition.name)}: {brief(condition.description or '')}"
        for address in tuple(self._waiting):
            self._answer(address, f"the broker takes no tokens in {_NODE}{why}")

    def credit_given(self, link: SenderLink) -> None:
        """Send the waiting requests."""
        self._send()

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Fail a request that the node did not accept; otherwise its response follows."""
        if outcome is not None and not outcome.accepted:
            self._answer(token, f"{_NODE} did not accept the request")

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Handle a response."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        try:
            message = codec.decode(data)
        except UndecodableMessage:
            return
        properties: dict[str, Any] = message.properties or {}
        status, address = _whole(properties.get("status-code")), message.correlation_id
        if not isinstance(address, str) or address not in self._waiting:
            return
        if status in _SUCCESS:
            self._allowed.add(address)
            self._answer(address, None)
        else:
            reason = brief(str(properties.get("status-description") or "no reason given"))
            self._answer(
                address, f"{_NODE} refuses the token for {quoted(address)}: {status or 'no status'} {reason}"
            )

    def _answer(self, address: str, refused: str | None) -> None:
        waiting = self._waiting.pop(address, [])
        if not self._waiting:
            self.stop()
            self._timer = None
        for link, attach in waiting:
            if refused is None:
                attach()
            else:
                link.fail(LinkRefused(refused, _UNAUTHORIZED))


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int) else 0
