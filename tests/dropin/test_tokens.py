"""Tokens in programs for proton: log-in by each mechanism, with TLS too, and renewals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import proton
import pytest
from proton import Message, SSLDomain
from proton.handlers import MessagingHandler

from haclient import Token
from haclient.reactor import Container
from tests.certificates import Authority
from tests.identity_provider import IdentityProvider
from tests.members import Member, Members

_MESSAGES = 700


class Application(MessagingHandler):
    """Sends numbers one by one, receives them, and ends with the last."""

    def __init__(self, url: str, count: int, **arguments: Any) -> None:
        super().__init__()
        self.received = Counter[int]()
        self.losses = 0
        self._url, self._count, self._arguments = url, count, arguments
        self._sent = 0
        self._sender: Any = None

    def on_start(self, event: proton.Event) -> None:
        connection = event.container.connect(self._url, **self._arguments)
        self._sender = event.container.create_sender(connection, "numbers")
        event.container.create_receiver(connection, "numbers")

    def on_sendable(self, event: proton.Event) -> None:
        if self._sent == 0:
            self._send()

    def _send(self) -> None:
        self._sender.send(Message(body=self._sent))
        self._sent += 1

    def on_message(self, event: proton.Event) -> None:
        self.received[event.message.body] += 1
        if len(self.received) == self._count:
            event.connection.close()
        else:
            event.container.schedule(0.005, self)

    def on_timer_task(self, event: proton.Event) -> None:
        self._send()

    def on_disconnected(self, event: proton.Event) -> None:
        self.losses += 1


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2", "PLAIN"])
def test_a_token_logs_in(mechanism: str, token_member: Member, provider: IdentityProvider) -> None:
    application = Application(
        token_member.url, 3, allowed_mechs=mechanism, credentials=lambda: Token(provider.token())
    )
    Container(application).run()
    assert application.received == Counter(range(3))


def test_a_token_logs_in_with_tls(members: Members, authority: Authority, provider: IdentityProvider) -> None:
    safe = members.start(
        "safe", role="primary", anonymous=False, certificate=authority.issue("127.0.0.1"), **provider.options
    )
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    application = Application(safe.url, 3, ssl_domain=domain, credentials=Token(provider.token()))
    Container(application).run()
    assert application.received == Counter(range(3))


@pytest.mark.slow
def test_a_token_is_renewed_and_no_message_is_lost_or_doubled(
    token_member: Member, provider: IdentityProvider
) -> None:
    application = Application(
        token_member.url, _MESSAGES, credentials=lambda: Token(provider.token(seconds=2))
    )
    Container(application).run()
    assert application.received == Counter(range(_MESSAGES))
    assert application.losses >= 2


def test_a_connection_without_failover_takes_no_function(
    token_member: Member, provider: IdentityProvider
) -> None:
    class Wrong(MessagingHandler):
        def on_start(self, event: proton.Event) -> None:
            event.container.connect(token_member.url, reconnect=False, credentials=Token(provider.token()))

    with pytest.raises(ValueError, match="reconnect=False takes user and password"):
        Container(Wrong()).run()
