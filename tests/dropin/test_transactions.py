"""Transactions end with their connection: their handlers get one event, and the broker stores nothing of
them.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
from proton import Condition, Handler, Message, ProtonException
from proton import reactor as proton_reactor

from haclient.outcome import ACCEPTED
from haclient.reactor import Container, Transaction, TransactionAborted
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dropin.programs_of_proton import Programs
from tests.dropin.recorder import FAST, PATIENCE, Recorder, running
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.coordinator import Coordinator, coordinator

DECLARED, COMMITTED, ABORTED = "transaction_declared", "transaction_committed", "transaction_aborted"
DECLARE_FAILED, COMMIT_FAILED = "transaction_declare_failed", "transaction_commit_failed"
ENDS = (COMMITTED, ABORTED, DECLARE_FAILED, COMMIT_FAILED)


def _nothing(_event: Any) -> None:
    """Record the event and do nothing else."""


class Transacting(Recorder):
    """Declares transactions at the start, and records all their events.

    :param transactions: how many to declare at the start.
    :ivar declared: the declared transactions, in order; ``requested``: the requested ones.
    :ivar ended: the transaction of each event of an end, in order.
    """

    def __init__(
        self,
        peer: Coordinator,
        *,
        transactions: int = 1,
        receives: bool = False,
        options: dict[str, Any] | None = None,
        **does: Any,
    ) -> None:
        noted = dict.fromkeys((DECLARED, *ENDS), _nothing)
        super().__init__(self._start, auto_accept=False, **(noted | does))
        self.peer = peer
        self.container: Any = None
        self.receiver: Any = None
        self.requested: list[Transaction] = []
        self.declared: list[Transaction] = []
        self.ended: list[Transaction] = []
        self._transactions, self._receives, self._options = transactions, receives, options or FAST

    def _start(self, container: Container) -> Any:
        self.container = container
        self.connection = container.connect(url(self.peer), **self._options)
        self.sender = container.create_sender(self.connection, "orders")
        if self._receives:
            self.receiver = container.create_receiver(self.connection, "news")
        for _ in range(self._transactions):
            self.declare()
        return self.connection

    def note(self, name: str, event: Any) -> None:
        if name == DECLARED:
            self.declared.append(event.transaction)
        elif name in ENDS:
            self.ended.append(event.transaction)
        super().note(name, event)

    @property
    def ends(self) -> list[str]:
        """Return the events of ends, and of losses."""
        return [name for name in self.seen if name in (*ENDS, "disconnected")]

    def declare(self) -> None:
        self.requested.append(self.container.declare_transaction(self.connection, handler=self))

    async def again(self) -> None:
        """Wait for the connection after a loss, and assert that a message arrives over it."""
        await self.until("link_opened", 2 * (2 + self._receives))
        self.sender.send(Message(body="afterwards"))
        await self.until("accepted")


async def lost(peer: Coordinator, handler: Transacting) -> None:
    """Lose the connection, and wait for the next."""
    peer.drop()
    await handler.until("disconnected")
    await handler.again()


async def test_a_transaction_that_is_open_at_a_loss_is_aborted_after_on_disconnected() -> None:
    async with coordinator(grants=3, drops_after=3) as peer:
        sent: list[Any] = []

        def send(_event: Any = None) -> None:
            while handler.declared and handler.sender.credit and len(sent) < 8:
                sent.append(handler.declared[0].send(handler.sender, Message(body=len(sent))))

        handler = Transacting(peer, **{DECLARED: send})
        async with running(handler):
            await handler.until(ABORTED)
            peer.grants = 100
            with pytest.raises(TransactionAborted, match="declare another"):
                handler.declared[0].send(handler.sender, Message(body="between connections"))
            await handler.again()
            with pytest.raises(TransactionAborted):
                send()
            handler.connection.close()
        assert handler.ends == ["disconnected", ABORTED]
        assert handler.ended == handler.declared == handler.requested
        assert len(sent) == 3
        assert (peer.stored, peer.arrived) == (["afterwards"], 4)
        assert peer.discharges == []


async def test_messages_that_waited_for_credit_under_a_lost_transaction_are_not_sent() -> None:
    async with coordinator(grants=1, drops_after=1) as peer:

        def send(_event: Any) -> None:
            for number in range(8):
                handler.declared[0].send(handler.sender, Message(id=number, body=number))

        handler = Transacting(peer, **{DECLARED: send})
        async with running(handler):
            await handler.until(ABORTED)
            peer.grants = 100
            await handler.again()
            handler.connection.close()
        assert peer.stored == ["afterwards"]


async def test_a_transaction_without_messages_is_aborted_too() -> None:
    async with coordinator() as peer:
        handler = Transacting(peer)
        async with running(handler):
            await handler.until(DECLARED)
            await lost(peer, handler)
            handler.connection.close()
        assert handler.ends == ["disconnected", ABORTED]


@pytest.mark.parametrize("answers", [set(), {"declare"}], ids=["no declare", "no discharge"])
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_what_had_no_answer_has_failed(answers: set[str], end: str) -> None:
    async with coordinator(answers=answers) as peer:

        def discharge(event: Any) -> None:
            event.transaction.send(handler.sender, Message(body="lost"))
            getattr(event.transaction, end)()

        handler = Transacting(peer, **{DECLARED: discharge})
        async with running(handler):
            await peer.until(lambda: peer.discharges if answers else peer.declared)
            await lost(peer, handler)
            with pytest.raises(TransactionAborted):
                handler.requested[0].send(handler.sender, Message(body="lost"))
            handler.connection.close()
        asked = COMMIT_FAILED if end == "commit" else ABORTED
        assert handler.ends == ["disconnected", asked if answers else DECLARE_FAILED]
        assert peer.stored == ["afterwards"]


async def test_transactions_beside_one_another_end_each_in_its_own_way() -> None:
    async with coordinator() as peer:

        def send(event: Any) -> None:
            event.transaction.send(handler.sender, Message(body=len(handler.declared)))

        handler = Transacting(peer, transactions=4, **{DECLARED: send})
        async with running(handler):
            await handler.until(DECLARED, 4)
            handler.declared[0].commit()
            await handler.until(COMMITTED)
            peer.answers = set()
            handler.declared[1].commit()
            handler.declared[2].abort()
            handler.declare()
            await peer.until(lambda: peer.declared == 5)
            peer.answers = {"declare", "discharge"}
            await lost(peer, handler)
            handler.connection.close()
        assert handler.ends == [COMMITTED, "disconnected", COMMIT_FAILED, ABORTED, ABORTED, DECLARE_FAILED]
        assert handler.ended == handler.requested
        assert peer.stored == [1, "afterwards"]


async def test_messages_are_not_accepted_under_a_lost_transaction() -> None:
    async with coordinator() as peer:
        deliveries: list[Any] = []
        handler = Transacting(peer, receives=True, message=lambda event: deliveries.append(event.delivery))
        async with running(handler):
            await handler.until(DECLARED)
            peer.put("news", "one")
            await handler.until("message")
            handler.declared[0].accept(deliveries[0])
            await peer.until(lambda: peer.outcomes)
            peer.outcomes.clear()
            peer.put("news", "two")
            await handler.until("message", 2)
            await lost(peer, handler)
            await handler.until("message", 3)
            for delivery in deliveries:
                with pytest.raises(TransactionAborted):
                    handler.declared[0].accept(delivery)
            await handler.again()
            assert peer.outcomes == []
            handler.accept(deliveries[-1])
            await peer.until(lambda: peer.outcomes)
            handler.connection.close()
        assert peer.outcomes == [ACCEPTED]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_each_discharge_of_a_lost_transaction_is_answered_and_not_sent(end: str) -> None:
    async with coordinator() as peer:
        handler = Transacting(peer)
        async with running(handler):
            await handler.until(DECLARED)
            handler.declared[0].send(handler.sender, Message(body="lost"))
            await lost(peer, handler)
            for _ in range(2):
                getattr(handler.declared[0], end)()
            asked = COMMIT_FAILED if end == "commit" else ABORTED
            await handler.until(asked, 2 + (end == "abort"))
            await handler.again()
            handler.connection.close()
        assert handler.ends[:2] == ["disconnected", ABORTED]
        assert handler.ends[2:] == [asked, asked]
        assert peer.discharges == []
        assert peer.stored == ["afterwards"] * 2


async def test_a_commit_in_on_disconnected_is_the_one_that_is_answered() -> None:
    async with coordinator() as peer:
        handler = Transacting(peer, disconnected=lambda _: handler.declared[0].commit())
        async with running(handler):
            await handler.until(DECLARED)
            await lost(peer, handler)
            handler.connection.close()
        assert handler.ends == ["disconnected", COMMIT_FAILED]


@pytest.mark.parametrize("where", ["disconnected", ABORTED])
async def test_a_transaction_that_is_declared_in_reaction_to_the_loss_is_of_the_next_connection(
    where: str,
) -> None:
    async with coordinator() as peer:

        def declare_another(event: Any) -> None:
            if len(handler.requested) == 1:
                handler.declare()

        def declared(event: Any) -> None:
            event.transaction.send(handler.sender, Message(body=len(handler.declared)))
            if len(handler.declared) == 2:
                event.transaction.commit()

        handler = Transacting(peer, **{DECLARED: declared, where: declare_another})
        async with running(handler):
            await peer.until(lambda: peer.arrived)
            peer.drop()
            await handler.until(COMMITTED)
            handler.connection.close()
        assert handler.ends == ["disconnected", ABORTED, COMMITTED]
        assert handler.ended == handler.declared == handler.requested
        assert peer.stored == [2]


async def test_a_transaction_that_is_declared_again_at_every_loss_ends_once_for_each() -> None:
    async with coordinator() as peer:
        handler = Transacting(peer, **{ABORTED: lambda _: handler.declare(), DECLARED: lambda _: peer.drop()})
        async with running(handler):
            await handler.until(DECLARED, 10)
            handler.does[DECLARED] = _nothing
            await handler.until(DECLARED, 11)
            assert handler.ended == handler.declared[:-1]
            assert list(handler.declared[0].txn_ctrl.transactions) == handler.declared[-1:]
            handler.connection.close()


async def test_closing_the_connection_is_no_loss_of_its_open_transactions() -> None:
    async with coordinator() as peer:
        handler = Transacting(peer, **{DECLARED: lambda event: event.connection.close()})
        async with running(handler):
            await handler.until(DECLARED)
        assert set(handler.ends) <= {"disconnected"}


async def test_a_transaction_of_a_plain_connection_ends_with_it() -> None:
    async with coordinator() as peer:

        def connect_once(container: Container) -> Any:
            handler.container = container
            handler.connection = container.connect(peer.address, reconnect=False)
            handler.declare()
            return handler.connection

        handler = Transacting(peer, **{DECLARED: lambda _: peer.drop()})
        handler._connect = connect_once
        async with running(handler):
            await handler.until(ABORTED)
        assert handler.ends == ["disconnected", ABORTED]


async def test_a_declare_that_waits_when_the_search_gives_up_has_failed() -> None:
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(coordinator())
        options = {"reconnect": [0, 0.01]}
        handler = Transacting(peer, options=options, **{ABORTED: lambda _: handler.declare()})
        async with running(handler):
            await handler.until(DECLARED)
            await stack.aclose()  # the port has no listener any more
            await handler.until(DECLARE_FAILED)
        assert handler.ends == ["disconnected", ABORTED, DECLARE_FAILED]
        assert handler.ended == handler.requested


async def test_nothing_is_sent_under_a_transaction_that_is_not_declared() -> None:
    """proton names no transaction then."""
    async with coordinator(answers=set()) as peer:
        handler = Transacting(peer, receives=True)
        async with running(handler):
            await peer.until(lambda: peer.declared)
            with pytest.raises(ProtonException, match="on_transaction_declared"):
                handler.requested[0].send(handler.sender, Message(body="too early"))
            handler.sender.send(Message(body="afterwards"))
            await handler.until("accepted")
            handler.connection.close()
        assert peer.stored == ["afterwards"]


async def test_a_coordinator_that_detaches_takes_its_transactions_along() -> None:
    """AMQP 1.0 part 4, section 4.3: they are rolled back at once."""
    async with coordinator() as peer:

        def react(_event: Any) -> None:
            with pytest.raises(TransactionAborted):
                handler.declared[0].send(handler.sender, Message(body="lost"))
            handler.declare()

        handler = Transacting(peer, link_error=react)
        async with running(handler):
            await handler.until(DECLARED)
            (links,) = peer.engines.values()
            control = next(link for link in links if link.endpoint.name == "txn-ctrl")
            control.close(Condition("amqp:transaction:rollback", "no more of this"))
            await handler.until(DECLARED, 2)
            with pytest.raises(TransactionAborted):
                handler.declared[0].send(handler.sender, Message(body="lost"))
            handler.declared[1].send(handler.sender, Message(body="kept"))
            handler.declared[1].commit()
            await handler.until(COMMITTED)
            await lost(peer, handler)
            handler.connection.close()
        assert peer.stored == ["kept", "afterwards"]
        assert handler.ends == [COMMITTED, "disconnected"]


@pytest.mark.parametrize("condition", [None, Condition("amqp:internal-error")])
async def test_a_session_that_the_peer_ends_takes_its_transactions_along(condition: Condition | None) -> None:
    async with coordinator() as peer:

        def react(_event: Any) -> None:
            with pytest.raises(TransactionAborted):
                handler.declared[0].send(handler.sender, Message(body="lost"))
            handler.declared[0].commit()

        handler = Transacting(peer, session_error=react, session_closing=react)
        async with running(handler):
            await handler.until(DECLARED)
            peer.end_sessions(condition)
            await handler.until(COMMIT_FAILED)
            handler.connection.close()
        assert (peer.arrived, peer.discharges) == (0, [])


@pytest.mark.parametrize("keeps_socket", [False, True])
@pytest.mark.parametrize("name", [None, "amqp:connection:forced", "amqp:connection:redirect"])
async def test_a_transaction_ends_with_a_peer_that_moves_on(name: str | None, keeps_socket: bool) -> None:
    async with coordinator(keeps_socket=keeps_socket) as peer:
        handler = Transacting(peer)
        async with running(handler):
            await handler.until(DECLARED)
            peer.close(name and Condition(name))
            await handler.until(ABORTED)
            with pytest.raises(TransactionAborted):
                handler.declared[0].send(handler.sender, Message(body="lost"))
            await handler.again()
            handler.connection.close()
        assert handler.ends == ["disconnected", ABORTED]
        assert peer.stored == ["afterwards"]


async def test_a_commit_that_is_refused_has_failed_as_ever() -> None:
    async with coordinator(refuses_commits=True) as peer:
        handler = Transacting(peer, **{DECLARED: lambda event: event.transaction.commit()})
        async with running(handler):
            await handler.until(COMMIT_FAILED)
            await lost(peer, handler)
            handler.connection.close()
        assert handler.ends == [COMMIT_FAILED, "disconnected"]


@pytest.mark.parametrize("handler", [None, Handler()], ids=["no handler", "a global handler beside it"])
async def test_the_end_is_reported_to_the_handler_of_the_transaction_alone_and_once(handler: Any) -> None:
    async with coordinator() as peer:
        recorder = Transacting(peer)
        async with running(recorder) as container:
            container.global_handler = handler
            await recorder.until(DECLARED)
            if handler is None:
                recorder.declared[0].handler = None
            await lost(peer, recorder)
            recorder.connection.close()
        assert recorder.ends == ["disconnected", ABORTED][: 1 + (handler is not None)]


class Blocking(Transacting):
    """Records the same events during blocking calls."""

    def __init__(self, connection: BlockingConnection) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.container, self.connection = connection.container, connection.conn


def test_a_transaction_beside_blocking_calls_ends_with_its_connection() -> None:
    with (
        in_thread(coordinator()) as peer,
        BlockingConnection(url(peer), timeout=PATIENCE, **FAST) as connection,
    ):
        sender, handler = connection.create_sender("orders"), Blocking(connection)
        handler.declare()
        connection.wait(lambda: handler.declared)
        (transaction,) = handler.declared
        transaction.send(sender.link, Message(body="lost"))
        connection.wait(lambda: peer.arrived)
        on_its_thread(peer, peer.drop)
        sender.send(Message(body="in between"))
        assert handler.ends == [ABORTED]
        with pytest.raises(TransactionAborted):
            transaction.send(sender.link, Message(body="lost"))
        transaction.commit()
        connection.wait(lambda: COMMIT_FAILED in handler.ends)
        handler.declare()
        connection.wait(lambda: len(handler.declared) == 2)
        handler.declared[1].send(sender.link, Message(body="kept"))
        handler.declared[1].commit()
        connection.wait(lambda: COMMITTED in handler.ends)
        assert peer.stored == ["in between", "kept"]


def test_a_commit_whose_answer_was_read_before_the_loss_is_reported_as_committed() -> None:
    """Handlers run inside blocking calls only: the answer waits for one."""
    with (
        in_thread(coordinator()) as peer,
        BlockingConnection(url(peer), timeout=PATIENCE, **FAST) as connection,
    ):
        handler = Blocking(connection)
        handler.declare()
        connection.wait(lambda: handler.declared)
        transaction = handler.declared[0]
        transaction.commit()
        wait_until(lambda: transaction._discharge.settled)
        on_its_thread(peer, peer.drop)
        wait_until(lambda: len(peer.accepted) == 2)  # so it has noticed the loss
        connection.wait(lambda: handler.ends)
        assert handler.ends == [COMMITTED]


async def test_a_program_that_sends_in_batches_ends_with_the_error_and_nothing_is_stored(
    programs: Programs,
) -> None:
    async with coordinator(grants=3, drops_after=3) as peer:
        async with programs.start("tx_batches", peer.address, "16", "8") as program:
            await program.line("TransactionAborted: .*declare another")
            with pytest.raises(AssertionError, match="exit code 1"):
                await program.end()
        assert (peer.arrived, peer.declared, peer.stored) == (3, 1, [])


async def test_a_program_that_sends_in_batches_commits_them_all(programs: Programs) -> None:
    async with (
        coordinator(grants=3) as peer,
        programs.start("tx_batches", peer.address, "16", "8") as program,
    ):
        assert await program.end() == "8 committed\n16 committed\n"
        assert peer.stored == list(range(1, 17))
        assert (peer.declared, peer.strays) == (2, [])


def test_proton_s_own_transactions_are_the_same_class() -> None:
    assert issubclass(Transaction, proton_reactor.Transaction)
    assert issubclass(TransactionAborted, ProtonException)
