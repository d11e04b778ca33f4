"""Measured brokers: values that replace a scenario's defaults.

Measured by ``python -m tests.brokers.setup_rate artemis-single rabbitmq``.  A setup is TCP, SASL PLAIN, Open,
Begin and one Attach of a bare client.  The rates are for one processor of a small virtual machine; a large
host manages several times as many.  Backlogs are the kernel's values for the broker's listening socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_SASL_ROUND_TRIPS = 4

BROKERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # 2.56.0, its first 200 setups: the JVM of a backup that takes over has not compiled the code yet.
        "artemis": {
            "setup_rate": 280.0,
            "backlog": 4096,
            "passive": "refuse",
            "handshake_round_trips": _SASL_ROUND_TRIPS,
        },
        # The same after 2,000 setups.
        "artemis-warm": {
            "setup_rate": 1075.0,
            "backlog": 4096,
            "passive": "refuse",
            "handshake_round_trips": _SASL_ROUND_TRIPS,
        },
        # 3.10.8 with the plugin for AMQP 1.0; all nodes serve, so its outage affects one address.
        "rabbitmq": {
            "setup_rate": 320.0,
            "backlog": 128,
            "passive": "refuse",
            "handshake_round_trips": _SASL_ROUND_TRIPS,
        },
    }
)
