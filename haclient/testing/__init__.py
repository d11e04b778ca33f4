"""For an application's tests: brokers that fail over, members that misbehave, short delays.

pytest has these as fixtures (``haclient.pytest_plugin``); the functions here are for other test tools, and
for an application's own fixtures.  ``docs/testing.md`` shows how to use them.

``pair``           a pair and a single broker, of real processes: ``ha_pair``, ``broker``
``in_process``     a broker in the test's own process, in milliseconds: ``in_process_broker``
``flaky``          a member for each kind of passive behaviour: ``flaky_peers``
``short_delays``   ``fast_failover``
``seeded_backoff``  ``random_source``: the same backoff each time
``virtual_clock``  an application's own backoff without real waiting: ``virtual_time``

Below them: ``cluster`` (the pair, asynchronous), ``network`` and ``proxy`` (routes that can be cut),
``peers`` (the behaviours, asynchronous), ``threads`` (an event loop in another thread).
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
from haclient.testing.flaky import FlakyPeer, FlakyPeers, flaky_peers
from haclient.testing.in_process import InProcessBroker, in_process_broker
from haclient.testing.pair import Broker, HAPair, broker, ha_pair
from haclient.testing.peers import BEHAVIOURS, url
from haclient.testing.seeded_backoff import random_source
from haclient.testing.short_delays import fast_failover
from haclient.testing.virtual_clock import VirtualTime, virtual_time

__all__ = [
    "BEHAVIOURS",
    "Broker",
    "FlakyPeer",
    "FlakyPeers",
    "HAPair",
    "InProcessBroker",
    "VirtualTime",
    "broker",
    "fast_failover",
    "flaky_peers",
    "ha_pair",
    "in_process_broker",
    "random_source",
    "url",
    "virtual_time",
]
