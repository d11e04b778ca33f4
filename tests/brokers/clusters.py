"""The clusters by name: the rows of the matrix.

A product that is not installed is no error: ``missing`` returns the reason, and the row is skipped with
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.brokers.pair import Pair
from tests.brokers.products import installed, rabbitmq, rabbitmq4
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind
from tests.brokers.products.broker_j import BrokerJ
from tests.brokers.topology import BrokerCluster, Launch


@dataclass(frozen=True, slots=True)
class _Product:
    """The launcher of a cluster, and the check whether it can run here."""

    missing: Callable[[], str]
    launch: Callable[[Launch], BrokerCluster]


def _artemis(kind: Kind) -> _Product:
    return _Product(partial(installed.missing, "Artemis", installed.ARTEMIS), partial(Artemis, kind))


_PRODUCTS = {
    "artemis-locked": _artemis(Kind.LOCKED),
    "artemis-shared": _artemis(Kind.SHARED),
    "artemis-quorum": _artemis(Kind.QUORUM),
    "artemis-single": _artemis(Kind.SINGLE),
    "broker-j": _Product(partial(installed.missing, "Broker-J", installed.BROKER_J), BrokerJ),
    "activemq": _Product(partial(installed.missing, "ActiveMQ Classic", installed.ACTIVEMQ), ActiveMQ),
    "rabbitmq4": _Product(rabbitmq4.missing, rabbitmq4.RabbitMQ4),
    "rabbitmq": _Product(rabbitmq.missing, rabbitmq.OneRabbitMQ),
    "pair": _Product(str, Pair),
}
NAMES = tuple(_PRODUCTS)


def missing(name: str) -> str:
    """Return why a cluster cannot be started here; empty if it can."""
    return _PRODUCTS[name].missing()


def launch(name: str, how: Launch) -> BrokerCluster:
    """Return a cluster that is not started yet; see ``missing``."""
    return _PRODUCTS[name].launch(how)
