from __future__ import annotations

import pytest

from haclient import aio, blocking
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import Options
from haclient.testing import fast_failover
from haclient.testing.short_delays import SHORT

URL = "amqp://nowhere.invalid"


def options(url: str = URL, **arguments: object) -> Options:
    """Return the options of a new factory."""
    return aio.ConnectionFactory(url, **arguments)._core.options


def test_every_delay_is_short_and_nothing_else_is_changed() -> None:
    with fast_failover():
        changed = options()
    defaults = options()
    for name in Options.__slots__:
        expected = SHORT.get(name, getattr(defaults, name))
        assert getattr(changed, name) == expected, name
        assert name not in SHORT or expected < getattr(defaults, name), name


def test_what_the_application_says_is_shortened_too_and_what_is_shorter_stays() -> None:
    with fast_failover():
        changed = options(f"{URL}/?backoff_max=1h&backoff_base=1ms", stagger=9, heartbeat=0)
    assert (changed.backoff_max, changed.stagger) == (SHORT["backoff_max"], SHORT["stagger"])
    assert (changed.backoff_base, changed.heartbeat) == (0.001, 0)


def test_how_long_the_client_tries_is_changed_on_demand_only() -> None:
    with fast_failover():
        assert options(deadline=3600).deadline == 3600
    with fast_failover(deadline=1, startup_deadline="2s"):
        changed = options(deadline=3600)
    assert (changed.deadline, changed.startup_deadline) == (1, 2)


def test_the_blocking_api_is_faster_too() -> None:
    with fast_failover(), blocking.ConnectionFactory(URL) as factory:
        assert factory._core.options.backoff_max == SHORT["backoff_max"]


def test_an_inner_context_adds_to_the_outer_one() -> None:
    with fast_failover(deadline=7):
        with fast_failover(max_attempts=3):
            both = options()
        outer = options()
    assert (both.deadline, both.max_attempts) == (7, 3)
    assert (outer.deadline, outer.max_attempts) == (7, None)


def test_an_option_that_does_not_exist_is_an_error_at_once() -> None:
    with pytest.raises(ClusterURLError, match="unknown option 'backof_max'; did you mean 'backoff_max'"):
        fast_failover(backof_max=1).__enter__()
