"""The addresses that a program written for proton passes to ``connect``, and the queue in them."""

from __future__ import annotations

import pytest

from haclient.reactor.addresses import cluster, split_path


@pytest.mark.parametrize(
    ("address", "dialled", "queue"),
    [
        ("amqp://a,b/orders?window=5", "amqp://a,b/?window=5", "orders"),
        ("amqp://a,amqp://b/orders", "amqp://a,amqp://b", "orders"),
        ("amqp://u:p@a,amqps://b:1/a%20queue?window=5", "amqp://u:p@a,amqps://b:1/?window=5", "a queue"),
        ("amqp://a,amqp://b", "amqp://a,amqp://b", None),
        ("amqp+ssl://a:5671/orders", "amqps://a:5671/orders", "orders"),
        ("amqp://a,amqp+ssl://b:5671/orders?window=5", "amqp://a,amqp+ssl://b:5671/?window=5", "orders"),
        ("failover:(amqp://a,amqp://b)", "failover:(amqp://a,amqp://b)", None),
    ],
)
def test_a_cluster_url_is_divided_into_what_is_dialled_and_the_queue(
    address: str, dialled: str, queue: str | None
) -> None:
    found, path = split_path(address)
    assert (str(found), path) == (dialled, queue)


def test_addresses_with_the_scheme_that_consoles_print_are_dialled_with_tls() -> None:
    seeds = cluster(["amqp+ssl://a/orders", "amqp+ssl://b:1"], None, None).seeds
    assert [str(seed.endpoint) for seed in seeds] == ["amqps://a:5671", "amqps://b:1"]
