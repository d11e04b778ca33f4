"""proton's link is freed once: proton's reference counts break if it is freed again."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from cproton_ffi import lib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proton import Condition, Endpoint, Handler, Message

from haclient.reactor.endpoints import binding
from haclient.testing.peers.listening import url
from haclient.utils import BlockingConnection, LinkDetached
from tests.dropin.recorder import FAST, PATIENCE
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary


class _Frees:
    """The C functions of proton; counts how often each link is freed."""

    def __init__(self) -> None:
        self.of: Counter[Any] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def pn_link_free(self, impl: Any) -> None:
        self.of[impl] += 1
        if self.of[impl] == 1:
            lib.pn_incref(impl)  # so that no other link gets its address
            lib.pn_link_free(impl)


@pytest.fixture
def frees(monkeypatch: pytest.MonkeyPatch) -> _Frees:
    frees = _Frees()
    monkeypatch.setattr(binding, "lib", frees)
    return frees


class _Closes(Handler):
    """Notes the links of the events of closes."""

    def __init__(self) -> None:
        self.links: list[Any] = []

    def on_link_local_close(self, event: Any) -> None:
        self.links.append(event.link)

    on_link_remote_close = on_link_local_close


def test_closes_of_both_sides_before_the_first_is_reported(
    connection: BlockingConnection, frees: _Frees
) -> None:
    handler = _Closes()
    link = connection.create_receiver("orders", handler=handler).link
    link.close()
    wait_until(lambda: link.state & Endpoint.REMOTE_CLOSED)  # handlers are called during blocking calls
    connection.create_sender("orders")
    assert handler.links == [link, link]
    assert list(frees.of.values()) == [1]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_a_link_is_freed_once_whoever_closes_it(
    peer: Primary, frees: _Frees, plan: list[tuple[bool, bool]]
) -> None:
    """The plan says for each link whether the peer closes it, and whether we use it before we close it."""
    frees.of.clear()
    with BlockingConnection(url(peer), timeout=PATIENCE, **FAST) as connection:
        for peer_closes, used in plan:
            sender = connection.create_sender("orders")
            if peer_closes:
                on_its_thread(peer, peer.detach, Condition("amqp:resource-deleted", "the queue is gone"))
            with suppress(LinkDetached):
                if used:
                    sender.send(Message("one"))
            with suppress(LinkDetached):
                sender.close()
        connection.create_sender("orders")  # by now all events were handled
        assert list(frees.of.values()) == [1] * len(plan)
