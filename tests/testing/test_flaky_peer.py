from __future__ import annotations

import pytest

import haclient
from haclient import Message
from haclient.testing import BEHAVIOURS, Broker, FlakyPeers, url


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_client_gets_past_each_behaviour_to_the_broker(
    name: str, haclient_flaky_peer: FlakyPeers, haclient_module_broker: Broker, haclient_fast_failover: None
) -> None:
    flaky = haclient_flaky_peer(name, primary=haclient_module_broker.address)
    with haclient.connect(url(flaky, haclient_module_broker), deadline=60) as connection:
        connection.create_sender("q").send(Message(body=name), timeout=60)


def test_it_counts_who_came(haclient_flaky_peer: FlakyPeers, haclient_module_broker: Broker) -> None:
    first, second = haclient_flaky_peer("accept_and_drop"), haclient_flaky_peer("accept_and_drop")
    with haclient.connect(url(first, haclient_module_broker)):
        pass
    assert (first.accepted, second.accepted) == (1, 0)


def test_every_name_is_known(haclient_flaky_peer: FlakyPeers) -> None:
    assert set(haclient_flaky_peer.names) == set(BEHAVIOURS)
    with pytest.raises(ValueError, match=r"no behaviour 'silent'; there are refused, .*silence"):
        haclient_flaky_peer("silent")


@pytest.mark.parametrize("primary", [None, "somewhere"])
def test_a_redirection_must_lead_somewhere(primary: str | None, haclient_flaky_peer: FlakyPeers) -> None:
    words = "say where to, with primary='host:port'" if primary is None else "'somewhere' is not host:port"
    with pytest.raises(ValueError, match=words):
        haclient_flaky_peer("redirect_after_open", primary=primary)
