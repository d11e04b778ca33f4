"""The values of ``reconnect=``, and the delays of each."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton.reactor import Backoff

from haclient.reactor.reconnecting import fixed_delays
from haclient.retry.backoff import FixedDelays
from haclient.testing.peers.deaf import accept_and_drop
from tests.dropin.recorder import Recorder, running, sending
from tests.telemetry.lines import lines, until


class Older:
    """proton's protocol before ``Backoff`` was an iterable."""

    def __init__(self) -> None:
        self.left = -1

    def reset(self) -> None:
        self.left = 3

    def next(self) -> float | None:
        self.left -= 1
        return 0.5 if self.left >= 0 else None


@pytest.mark.parametrize("reconnect", [None, True])
def test_without_delays_they_are_those_of_the_options(reconnect: Any) -> None:
    assert fixed_delays(reconnect) is None


@pytest.mark.parametrize(
    ("reconnect", "expected"),
    [
        ([0, 0.5, 1], FixedDelays((0.0, 0.5, 1.0), 3)),
        ((7,), FixedDelays((7.0,), 1)),
        (iter([0, 2]), FixedDelays((0.0, 2.0), 2)),
        (Older(), FixedDelays((0.5, 0.5, 0.5), 3)),
        ([], FixedDelays((0.0,), 1)),
        ([-1, 0.5], FixedDelays((0.0, 0.5), 2)),
        ([0.0] * 2500, FixedDelays((0.0,) * 2500, 2500)),
    ],
    ids=["list", "one", "iterator", "older", "none", "negative", "long"],
)
def test_a_list_has_one_round_for_each_delay(reconnect: Any, expected: FixedDelays) -> None:
    assert fixed_delays(reconnect) == expected


@pytest.mark.parametrize("delay", [math.inf, math.nan])
def test_a_delay_without_an_end_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        fixed_delays([0.1, delay])


@given(
    initial=st.sampled_from([0.01, 0.1, 3.0]),
    factor=st.sampled_from([1.0, 1.5, 2.0]),
    max_delay=st.sampled_from([0.1, 10.0]),
    tries=st.integers(1, 30),
)
def test_a_backoff_has_the_delays_that_proton_waits(
    initial: float, factor: float, max_delay: float, tries: int
) -> None:
    options = {"initial": initial, "factor": factor, "max_delay": max_delay}
    delays = fixed_delays(Backoff(max_tries=tries, **options))
    endless = fixed_delays(Backoff(**options))
    assert delays is not None
    assert endless is not None
    assert delays == FixedDelays(tuple(Backoff(max_tries=tries, **options)), tries)
    assert endless.delays[:200] == tuple(itertools.islice(Backoff(**options), 200))
    assert endless.rounds == math.inf


def test_a_backoff_of_many_tries_has_an_end() -> None:
    """The last delay repeats until the end."""
    delays = fixed_delays(Backoff(max_tries=1500))
    assert delays is not None
    assert (delays.rounds, delays.delays[-1]) == (1500, 10.0)


@pytest.mark.parametrize(("count", "rounds"), [(999, 999), (1000, 1000), (1001, math.inf)])
def test_a_generator_of_up_to_a_thousand_delays_has_an_end(count: int, rounds: float) -> None:
    """A longer generator may be endless."""
    delays = fixed_delays(delay for delay in [0.5] * count)
    assert delays == FixedDelays((0.5,) * min(count, 1000), rounds)


def test_a_backoff_that_two_connections_share_is_whole_for_both() -> None:
    """proton's backoff is used up by the first connection."""
    backoff = Backoff(max_tries=4)
    assert fixed_delays(backoff) == fixed_delays(backoff)
    assert len(list(backoff)) == 4


def test_delays_without_end_do_not_keep_the_loop_busy() -> None:
    """The loop stays free however often the last delay repeats."""
    delays = fixed_delays(itertools.repeat(0))
    assert delays is not None
    assert delays.rounds == math.inf
    assert delays.delays[-1] > 0


@pytest.mark.parametrize(
    ("reconnect", "error"), [(5, TypeError), ([0, "soon"], ValueError), ([None], TypeError)]
)
def test_what_is_no_delay_is_refused_at_once(reconnect: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fixed_delays(reconnect)


async def test_delays_of_the_program_are_taken_as_they_are(tmp_path: Path) -> None:
    """As with proton, the program decides; the options of the URL do not matter."""
    async with accept_and_drop() as peer:
        options = {"telemetry": str(tmp_path), "backoff_base": 9.0, "backoff_max": 9.0}
        async with running(Recorder(sending(peer, reconnect=[0, 0.03, 0.01, 0.02], **options))):
            pass
        await until(lambda: lines(tmp_path, "gave_up"))
    told = [line["data"]["haclient.backoff.delay"] for line in lines(tmp_path, "backoff")]
    assert told == [0.03, 0.01, 0.02]
    assert len(peer.accepted) == 4
