"""Fixtures for testing an application's failover; pytest finds them by itself.

======================================  ========  ========================================================
fixture                                 scope     value
======================================  ========  ========================================================
``haclient_pair``                       function  ``HAPair``: two members, arbiter, manager
``haclient_module_pair``                module    the same, shared; ``restore()`` makes it as new
``haclient_session_pair``               session
``haclient_pair_factory``               session   ``ha_pair``, for other members, users and scopes
``haclient_broker``                     function  ``Broker``: one member, a process
``haclient_module_broker``              module
``haclient_session_broker``             session
``haclient_in_process_broker``          function  ``InProcessBroker``: one, a thread of the test's process
``haclient_module_in_process_broker``   module
``haclient_session_in_process_broker``  session
``haclient_flaky_peer``                 function  ``FlakyPeers``: call it with a behaviour's name
``haclient_fast_failover``              function  every delay of the client is short during the test
``haclient_random_source``              function  the same ``random.Random`` for each factory, seeded with 0
``haclient_virtual_time``               function  ``VirtualTime``: the application's own delays
======================================  ========  ========================================================

The classes are in ``haclient.testing``.

Rules
-----
* A test session without these fixtures is unaffected: no hook, no option, no marker, and only pytest is
  imported.  The first fixture that needs proton and the brokers imports them.
* A fixture works in plain and in asynchronous tests, whatever plugin runs those.
* Each pytest-xdist worker has its own brokers, at their own addresses.

``-p no:haclient`` switches the plugin off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from random import Random

    from haclient.testing import Broker, FlakyPeers, HAPair, InProcessBroker, VirtualTime


@pytest.fixture(scope="session")
def haclient_pair_factory() -> Callable[..., AbstractContextManager[HAPair]]:
    """Start pairs with other members, users or scopes; the parameters are in ``haclient.testing``."""
    from haclient.testing import ha_pair  # noqa: PLC0415 - not before it is needed, see the rules

    return ha_pair


@pytest.fixture
def haclient_pair() -> Iterator[HAPair]:
    """Two brokers that replicate each other and fail over, as real processes, for this test only."""
    yield from _pair()


@pytest.fixture(scope="module")
def haclient_module_pair() -> Iterator[HAPair]:
    """A pair for all tests of a module; ``restore()`` resets it."""
    yield from _pair()


@pytest.fixture(scope="session")
def haclient_session_pair() -> Iterator[HAPair]:
    """A pair for the whole session; ``restore()`` resets it."""
    yield from _pair()


@pytest.fixture
def haclient_broker() -> Iterator[Broker]:
    """One broker, as a real process, for this test only."""
    yield from _broker()


@pytest.fixture(scope="module")
def haclient_module_broker() -> Iterator[Broker]:
    """A broker for all tests of a module; ``restore()`` resets it."""
    yield from _broker()


@pytest.fixture(scope="session")
def haclient_session_broker() -> Iterator[Broker]:
    """A broker for the whole session; ``restore()`` resets it."""
    yield from _broker()


@pytest.fixture
def haclient_in_process_broker() -> Iterator[InProcessBroker]:
    """One broker on a thread of this process, for this test only; starts in milliseconds."""
    yield from _in_process_broker()


@pytest.fixture(scope="module")
def haclient_module_in_process_broker() -> Iterator[InProcessBroker]:
    """A broker in this process for all tests of a module; ``restore()`` resets it."""
    yield from _in_process_broker()


@pytest.fixture(scope="session")
def haclient_session_in_process_broker() -> Iterator[InProcessBroker]:
    """A broker in this process for the whole session; ``restore()`` resets it."""
    yield from _in_process_broker()


@pytest.fixture
def haclient_flaky_peer() -> Iterator[FlakyPeers]:
    """Members that misbehave: ``haclient_flaky_peer("silence")``; ``.names`` lists the behaviours."""
    from haclient.testing import flaky_peers  # noqa: PLC0415 - not before it is needed, see the rules

    with flaky_peers() as peers:
        yield peers


@pytest.fixture
def haclient_fast_failover() -> Iterator[None]:
    """Shorten every delay of the client while this test runs."""
    from haclient.testing import fast_failover  # noqa: PLC0415 - not before it is needed, see the rules

    with fast_failover():
        yield


@pytest.fixture
def haclient_random_source() -> Iterator[Random]:
    """One random source, seeded with 0, for the delays of all factories made in this test."""
    from random import Random  # noqa: PLC0415 - not before it is needed, see the rules

    from haclient.testing import random_source  # noqa: PLC0415 - not before it is needed, see the rules

    rng = Random(0)
    with random_source(rng):
        yield rng


@pytest.fixture
def haclient_virtual_time() -> Iterator[VirtualTime]:
    """Let the application's own sleeps and timeouts pass at once: ``run(coroutine)``."""
    from haclient.testing import virtual_time  # noqa: PLC0415 - not before it is needed, see the rules

    with virtual_time() as clock:
        yield clock


def _pair() -> Iterator[HAPair]:
    from haclient.testing import ha_pair  # noqa: PLC0415 - not before it is needed, see the rules

    with ha_pair() as pair:
        yield pair


def _broker() -> Iterator[Broker]:
    from haclient.testing import broker  # noqa: PLC0415 - not before it is needed, see the rules

    with broker() as member:
        yield member


def _in_process_broker() -> Iterator[InProcessBroker]:
    from haclient.testing import in_process_broker  # noqa: PLC0415 - not before it is needed, see the rules

    with in_process_broker() as member:
        yield member
