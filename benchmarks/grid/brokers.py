"""Brokers as they were measured: what a scenario has in place of its defaults.

``python -m tests.brokers.setup_rate artemis-single rabbitmq`` measures: TCP, SASL PLAIN, Open, Begin and one
Attach of a bare client cost the broker so much time of one processor (of a small virtual machine; a large
host manages some times as many).  Backlogs are those that the broker's listening socket has in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_SASL_ROUND_TRIPS = 4

BROKERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # 2.56.0, its first 200 setups: a backup that takes over has not been compiled by its JVM yet.
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
        # 3.10.8 with the plugin for AMQP 1.0; all nodes serve, so its outage is that of one address.
        "rabbitmq": {
            "setup_rate": 320.0,
            "backlog": 128,
            "passive": "refuse",
            "handshake_round_trips": _SASL_ROUND_TRIPS,
        },
    }
)
