"""The credit of a link, against a model of a client that uses it as AMQP allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_stub.connections.credit import CreditWindow

MESSAGES, SIZE = 1000, 16_000_000


def window() -> CreditWindow:
    made = CreditWindow(MESSAGES, SIZE)
    made.change(made.due())
    return made


def left(made: CreditWindow) -> int:
    """Return the messages that a client that has seen every Flow may still send (section 2.6.7)."""
    return made._granted - made._received


@given(st.lists(st.tuples(st.integers(0, 300_000_000), st.booleans()), max_size=300))
def test_a_client_that_keeps_to_its_credit_always_gets_more(
    sent: list[tuple[int, bool]],
) -> None:
    made = window()
    seen = MESSAGES  # the highest delivery-count that the client knows of, late at times
    for count, (size, hears) in enumerate(sent):
        if count >= seen:
            seen = made._granted
        if count >= seen:
            break
        made.change(made.received(size))
        assert left(made) >= 1
        assert left(made) <= MESSAGES
        if hears:
            seen = made._granted


@given(st.integers(1, 300_000_000))
def test_the_credit_of_equal_messages_is_what_the_bytes_hold(size: int) -> None:
    made = window()
    for _ in range(50):
        made.change(made.received(size))
        if size * MESSAGES > SIZE:
            assert left(made) * size <= max(size, SIZE * 1.5)


def test_small_messages_have_the_whole_credit_in_steps_of_a_half() -> None:
    made = window()
    changes = []
    for _ in range(10 * MESSAGES):
        if change := made.received(100):
            made.change(change)
            changes.append(change)
    assert changes == [MESSAGES // 2] * 20


def test_each_message_to_a_full_target_takes_one_until_it_has_room() -> None:
    made = CreditWindow(4, SIZE)
    made.change(made.due())
    for _ in range(4):
        made.hold("q")
        made.change(made.received(10))
    assert left(made) == 0
    made.unhold("q")
    assert made.due() == 4
