"""The fate of frames under each single condition, with a clock that the test moves."""

from __future__ import annotations

import pytest

from tests.hosts.switch import Conditions, Switch
from tests.hosts.switch_process import hardware_address

A, B, C = (hardware_address(number) for number in range(3))
EVERYBODY = b"\xff" * 6


def frame(target: bytes, number: int = 0) -> bytes:
    return target + number.to_bytes(4)


def carried(switch: Switch, until: float) -> list[tuple[int, int]]:
    """Return pairs of receiving host and frame number."""
    return [(port, int.from_bytes(data[6:])) for port, data in switch.due(until)]


def send(switch: Switch, count: int, *, every: float = 0.0) -> None:
    for number in range(count):
        switch.take(0, frame(B, number), every * number)


def made(conditions: Conditions, seed: int = 1) -> Switch:
    switch = Switch((A, B, C), seed)
    switch.change([(0, 1)], conditions)
    return switch


def test_a_frame_arrives_at_its_host_and_nowhere_else() -> None:
    switch = Switch((A, B, C), 1)
    switch.take(0, frame(C, 5), 0.0)
    assert carried(switch, 0.0) == [(2, 5)]
    assert switch.next_due() is None


def test_a_frame_for_everybody_arrives_at_every_other_host() -> None:
    switch = Switch((A, B, C), 1)
    switch.take(1, frame(EVERYBODY), 0.0)
    assert carried(switch, 0.0) == [(0, 0), (2, 0)]


@pytest.mark.parametrize("target", [A, hardware_address(9)])
def test_a_frame_for_oneself_or_for_nobody_is_dropped(target: bytes) -> None:
    switch = Switch((A, B, C), 1)
    switch.take(0, frame(target), 0.0)
    assert carried(switch, 9.0) == []


def test_delay_is_for_one_direction_and_jitter_keeps_the_order() -> None:
    switch = made(Conditions(delay=1.0, jitter=0.5))
    send(switch, 100)
    switch.take(1, frame(A, 7), 0.0)
    assert carried(switch, 0.4) == [(0, 7)]
    assert carried(switch, 1.5) == [(1, number) for number in range(100)]


def test_without_loss_all_arrive_and_with_all_loss_none_and_with_half_about_half() -> None:
    arrived = {}
    for loss in (0.0, 0.5, 1.0):
        switch = made(Conditions(loss=loss))
        send(switch, 1000)
        arrived[loss] = len(carried(switch, 1.0))
        assert switch.cables[0, 1].counts["lost"] == 1000 - arrived[loss]
    assert (arrived[0.0], arrived[1.0]) == (1000, 0)
    assert 400 < arrived[0.5] < 600


def test_what_is_reordered_is_overtaken_and_arrives() -> None:
    switch = made(Conditions(reorder=0.1, hold_back=0.05))
    send(switch, 1000, every=0.01)
    numbers = [number for _port, number in carried(switch, 20.0)]
    assert sorted(numbers) == list(range(1000))
    assert numbers != sorted(numbers)


def test_what_is_duplicated_arrives_twice() -> None:
    switch = made(Conditions(duplicate=1.0))
    send(switch, 3)
    assert [number for _port, number in carried(switch, 0.0)] == [0, 0, 1, 1, 2, 2]


def test_a_cut_is_for_one_direction_and_takes_what_is_under_way() -> None:
    switch = made(Conditions(delay=1.0))
    send(switch, 2)
    switch.change([(0, 1)], Conditions(cut=True))
    send(switch, 2)
    switch.take(1, frame(A), 0.0)
    assert carried(switch, 5.0) == [(0, 0)]
    assert switch.cables[0, 1].counts["cut"] == 4


def test_a_full_queue_drops_at_its_tail_and_counts() -> None:
    switch = made(Conditions(delay=1.0, queue=3))
    send(switch, 5)
    assert switch.cables[0, 1].counts["dropped"] == 2
    assert carried(switch, 1.0) == [(1, 0), (1, 1), (1, 2)]
    send(switch, 1)
    assert len(carried(switch, 9.0)) == 1


def test_the_same_seed_does_the_same_and_another_one_something_else() -> None:
    def outcome(seed: int) -> list[tuple[int, int]]:
        switch = made(Conditions(delay=0.2, jitter=0.2, loss=0.3, reorder=0.2, duplicate=0.1), seed)
        send(switch, 500, every=0.01)
        return carried(switch, 99.0)

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


def test_what_other_pairs_carry_changes_nothing() -> None:
    def outcome(*, others: bool) -> list[tuple[int, int]]:
        switch = made(Conditions(loss=0.5))
        for number in range(100):
            switch.take(0, frame(B, number), 0.0)
            if others:
                switch.take(2, frame(B, 0), 0.0)
                switch.take(1, frame(A, 0), 0.0)
        return [each for each in carried(switch, 0.0) if each[0] == 1 and each[1]]

    assert outcome(others=True) == outcome(others=False)


@pytest.mark.parametrize("wrong", [{"loss": 1.1}, {"delay": -1.0}, {"jitter": 0.1}, {"duplicate": -0.1}])
def test_conditions_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"share|delay"):
        Conditions(**wrong)  # type: ignore[arg-type]
