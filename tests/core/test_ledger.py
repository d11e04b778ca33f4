"""The ledger against a plain list: no loss, no copy, no change of order."""

from __future__ import annotations

from asyncio import Future
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from haclient.core.ledger import Entry, Ledger


class Waiter:
    """A future without a loop."""

    def __init__(self) -> None:
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self._done = True

    set_exception = set_result


class LedgerMachine(RuleBasedStateMachine):
    """A sender over many connections.  ``open`` lists the unsettled messages, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: Ledger[Waiter] = Ledger(window=10)
        self.open: list[Entry[Waiter]] = []
        self.wire: list[Entry[Waiter]] = []
        self.arrived: list[bytes] = []
        self.number = 0

    @precondition(lambda self: not self.ledger.full)
    @rule()
    def submit(self) -> None:
        self.number += 1
        entry = self.ledger.add(b"%d" % self.number, Waiter())
        self.open.append(entry)
        self.ledger.unsent.append(entry)

    @precondition(lambda self: self.ledger.unsent)
    @rule(credit=st.integers(1, 5))
    def pump(self, credit: int) -> None:
        while self.ledger.unsent and credit:
            entry = self.ledger.unsent.popleft()
            if entry in self.ledger:
                entry.delivery, entry.sent = object(), True
                self.wire.append(entry)
                credit -= 1

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.wire))
        self.wire.remove(entry)
        self.open.remove(entry)
        self.arrived.append(entry.data)
        assert self.ledger.remove(entry)
        assert not self.ledger.remove(entry)
        assert (entry.data, entry.delivery) == (b"", None)
        entry.waiter.set_result(None)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.open))
        self.open.remove(entry)
        assert self.ledger.withdraw(entry)
        assert not self.ledger.withdraw(entry)
        assert (entry.data, entry.delivery) == (b"", None)
        if entry in self.wire:
            self.wire.remove(entry)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        """The application cancels a future: its entry leaves at the next loss, or when it is settled."""
        data.draw(st.sampled_from(self.open)).waiter.set_result(None)

    @rule(keep_sent=st.booleans())
    def lose(self, keep_sent: bool) -> None:
        given_up = self.ledger.on_disconnected(keep_sent=keep_sent)
        if keep_sent:
            assert given_up == []
        else:
            assert given_up == [entry for entry in self.open if entry.sent]
        self.open = [e for e in self.open if e not in given_up and not e.waiter.done()]
        self.wire = []
        assert list(self.ledger.unsent) == self.open
        assert all(entry.delivery is None for entry in self.open)

    @rule()
    def close(self) -> None:
        assert self.ledger.clear() == self.open
        self.open, self.wire = [], []
        assert not self.ledger.unsent

    @invariant()
    def every_open_entry_is_held_and_no_other(self) -> None:
        assert len(self.ledger) == len(self.open)
        assert all(entry in self.ledger for entry in self.open)
        assert self.ledger.full == (len(self.open) >= 10)

    @invariant()
    def what_is_to_be_sent_is_in_order(self) -> None:
        unsent = [int(entry.data) for entry in self.ledger.unsent if entry in self.ledger]
        assert unsent == sorted(unsent)
        assert len(self.ledger.unsent) <= 2 * len(self.ledger) + 20 + 16
        assert len(self.arrived) == len(set(self.arrived))


TestLedger = LedgerMachine.TestCase


@given(st.lists(st.booleans(), max_size=30))
def test_after_a_loss_everything_unsettled_goes_out_again_in_its_old_order(sent: list[bool]) -> None:
    ledger: Ledger[Waiter] = Ledger(100)
    entries = [ledger.add(b"%d" % number, Waiter()) for number in range(len(sent))]
    for entry, left in zip(entries, sent, strict=True):
        entry.sent = left
    assert ledger.on_disconnected(keep_sent=True) == []
    assert list(ledger.unsent) == entries
    ledger.on_disconnected(keep_sent=True)
    assert list(ledger.unsent) == entries


def test_an_asyncio_future_is_a_waiter() -> None:
    assert {"done", "set_result", "set_exception"} <= set(dir(Future))
