"""The limit of half-open connections, and the choice of the one to close."""

from __future__ import annotations

from broker_stub.admission.handshakes import MAX_YOUNG, MIN_AGE, MIN_SILENCE, PATIENCE, SLOWER, Handshakes


class Newcomer:
    def __init__(self) -> None:
        self.why = ""

    def abort(self, why: str) -> None:
        self.why = why


def test_below_the_limit_there_is_room() -> None:
    handshakes = Handshakes(2)
    handshakes.begin(Newcomer(), 0.0)
    assert handshakes.accept_delay(0.0) == 0.0
    assert (len(handshakes), handshakes.aborted) == (1, 0)


def seen(limit: int, seconds: float) -> Handshakes:
    """Return the state after a while in which handshakes took this long."""
    handshakes = Handshakes(limit)
    for _ in range(200):
        honest = Newcomer()
        handshakes.begin(honest, 0.0)
        handshakes.opened(honest, seconds)
    return handshakes


def test_at_the_limit_the_oldest_is_cut() -> None:
    handshakes, old, new = seen(2, 0.01), Newcomer(), Newcomer()
    handshakes.begin(old, 0.0)
    handshakes.begin(new, 1.9)
    assert handshakes.accept_delay(MIN_AGE) == 0.0
    assert old.why == "2 handshakes are unfinished"
    assert (new.why, len(handshakes), handshakes.aborted) == ("", 1, 1)


def test_one_that_has_just_come_is_given_time() -> None:
    handshakes, young = seen(1, 0.01), Newcomer()
    handshakes.begin(young, 1.0)
    for now in (1.0, 1.0 + PATIENCE, 0.99 + MIN_AGE):
        assert handshakes.accept_delay(now) > 0
    handshakes.opened(young, 1.5)
    assert handshakes.accept_delay(1.5) == 0.0
    assert young.why == ""


def test_where_everybody_is_slow_nobody_is_cut_for_it() -> None:
    handshakes, slow = seen(1, 2.0), Newcomer()
    handshakes.begin(slow, 0.0)
    assert handshakes.accept_delay(0.95 * SLOWER * 2.0) > 0
    assert handshakes.accept_delay(SLOWER * 2.0) == 0.0
    assert slow.why


def test_many_at_once_wait_until_some_are_done_or_have_shown_that_they_are_slow() -> None:
    handshakes = Handshakes(10_000)
    newcomers = [Newcomer() for _ in range(MAX_YOUNG)]
    for newcomer in newcomers:
        handshakes.begin(newcomer, 0.0)
    assert handshakes.accept_delay(0.05) > 0
    handshakes.done(newcomers[7])
    assert handshakes.accept_delay(0.05) == 0.0
    handshakes.begin(newcomers[7], 0.05)
    assert handshakes.accept_delay(0.05) > 0
    assert handshakes.accept_delay(PATIENCE) == 0.0
    assert (len(handshakes), handshakes.aborted) == (MAX_YOUNG, 0)


def test_whoever_is_done_late_is_forgotten_as_well() -> None:
    handshakes, slow = Handshakes(10), Newcomer()
    handshakes.begin(slow, 0.0)
    handshakes.accept_delay(PATIENCE)
    handshakes.done(slow)
    assert len(handshakes) == 0


def test_cutting_the_oldest_of_none_is_nothing() -> None:
    handshakes = Handshakes(1)
    handshakes.abort_oldest("no descriptors")
    assert handshakes.aborted == 0


# -- clients that have sent nothing ------------------------------------------------------------------


def silent_ones(count: int, at: float = 0.0, limit: int = 1000) -> tuple[Handshakes, list[Newcomer]]:
    handshakes, silent = Handshakes(limit), [Newcomer() for _ in range(count)]
    for each in silent:
        handshakes.wait_for(each, at)
    return handshakes, silent


def test_silent_ones_delay_nobody_below_the_limit() -> None:
    handshakes, _ = silent_ones(999)
    assert handshakes.accept_delay(0.0) == 0.0
    assert (len(handshakes), handshakes.begun, handshakes.aborted) == (999, 0, 0)


def test_at_the_limit_the_oldest_silent_one_is_aborted_before_those_that_have_spoken() -> None:
    handshakes, silent = silent_ones(2, limit=3)
    spoken = Newcomer()
    handshakes.begin(spoken, 0.0)
    assert handshakes.accept_delay(MIN_SILENCE * 0.9) > 0
    assert handshakes.accept_delay(MIN_AGE) == 0.0
    assert [bool(each.why) for each in (*silent, spoken)] == [True, False, False]


def test_silent_ones_that_go_on_coming_are_accepted_and_aborted_fast_enough() -> None:
    """Ten thousand connect, with 1,000 places, and a probe behind them that waits for two seconds at most."""
    handshakes, _ = silent_ones(1000)
    now, accepted = 0.0, 0
    while now < 2.0:
        if delay := handshakes.accept_delay(now):
            now += delay
        else:
            handshakes.wait_for(Newcomer(), now)
            accepted += 1
    assert accepted > 4096, "those who wait in the kernel before the probe"


def test_whoever_has_spoken_is_no_longer_silent() -> None:
    handshakes, [first, second] = silent_ones(2, limit=2)
    handshakes.spoke(first, 0.0)
    handshakes.begin(first, 0.0)
    assert (len(handshakes), handshakes.begun) == (2, 1)
    assert handshakes.accept_delay(MIN_SILENCE) == 0.0
    assert (bool(first.why), bool(second.why)) == (False, True)


def test_where_first_bytes_are_late_silent_ones_have_more_time_but_never_more_than_the_others() -> None:
    handshakes = Handshakes(1)
    for _ in range(100):
        late = Newcomer()
        handshakes.wait_for(late, 0.0)
        handshakes.spoke(late, 9.0)
    last = Newcomer()
    handshakes.wait_for(last, 10.0)
    assert handshakes.accept_delay(10.0 + MIN_AGE * 0.9) > 0
    assert handshakes.accept_delay(10.0 + MIN_AGE) == 0.0
    assert last.why


def test_without_descriptors_silent_ones_go_first() -> None:
    handshakes, [silent] = silent_ones(1, at=5.0)
    old = Newcomer()
    handshakes.begin(old, 0.0)
    handshakes.abort_oldest("there is no file descriptor left")
    assert (bool(silent.why), bool(old.why)) == (True, False)
