"""What a program written for proton passes to ``connect``, and the queue in it."""

from __future__ import annotations

import pytest

from haclient.reactor.addresses import split_path


@pytest.mark.parametrize(
    ("address", "dialled", "queue"),
    [
        ("amqp://a,b/orders?window=5", "amqp://a,b/?window=5", "orders"),
        ("amqp://a,amqp://b/orders", "amqp://a,amqp://b", "orders"),
        ("amqp://u:p@a,amqps://b:1/a%20queue?window=5", "amqp://u:p@a,amqps://b:1/?window=5", "a queue"),
        ("amqp://a,amqp://b", "amqp://a,amqp://b", None),
        ("failover:(amqp://a,amqp://b)", "failover:(amqp://a,amqp://b)", None),
    ],
)
def test_a_cluster_url_is_divided_into_what_is_dialled_and_the_queue(
    address: str, dialled: str, queue: str | None
) -> None:
    assert split_path(address) == (dialled, queue)
