"""The clusters by name: the rows of the matrix.

A product that is not installed is no error here: ``missing`` says why, and the row is skipped with that.
"""

from __future__ import annotations

from tests.brokers.topology import BrokerCluster, Launch

NAMES = (
    "artemis-locked",
    "artemis-shared",
    "artemis-quorum",
    "artemis-single",
    "broker-j",
    "rabbitmq",
    "pair",
)


def missing(name: str) -> str:
    """Why a cluster cannot be started here; empty when it can."""
    raise NotImplementedError(name)


def launch(name: str, how: Launch) -> BrokerCluster:
    """A cluster that is not started yet; see ``missing``."""
    raise NotImplementedError(name, how)
